"""A tiny random Llama as Hugging Face's files: a real model for vLLM, with nothing to download.

As a program (``python -m tests.engine.tiny_llama FOLDER``), under a Python with torch and
transformers. Its sizes and its tokenizer are those of tiny_model.py; the same files every time.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pointsman.bench.engines import tiny_model as tiny

END_OF_TEXT, _, END_OF_TURN = tiny.SPECIAL


def write_llama(folder: Path) -> None:
    """Model and tokenizer, in bfloat16: 5 million weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=tiny.VOCABULARY,
        hidden_size=tiny.HIDDEN,
        num_hidden_layers=tiny.LAYERS,
        intermediate_size=tiny.FEED_FORWARD,
        num_attention_heads=tiny.HEADS,
        num_key_value_heads=tiny.KV_HEADS,
        max_position_embeddings=tiny.CONTEXT,
        bos_token_id=tiny.SPECIAL.index(END_OF_TEXT),
        eos_token_id=tiny.SPECIAL.index(END_OF_TURN),
        tie_word_embeddings=False,
        initializer_range=0.08,  # peaked logits: fewer ties between tokens
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tiny.tokenizer(),
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TURN,
        pad_token=END_OF_TEXT,
        model_max_length=tiny.CONTEXT,
        chat_template=tiny.CHAT_TEMPLATE,
    )
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    write_llama(Path(sys.argv[1]))
