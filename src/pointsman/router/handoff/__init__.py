"""How a prompt's KV cache gets from a prefill to a decode replica: one file a protocol."""
