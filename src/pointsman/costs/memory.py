"""What fills a GPU: weights, activations, and what is left for the KV cache."""

from __future__ import annotations

from pointsman.costs.models import ModelShape
from pointsman.costs.parallel import Parallel

# The embedding and the head stay in 16 bits where the layers are quantised.
TABLE_BYTES = 2
# CUDA context, workspaces, captured graphs, what the allocator cannot use: 0.1 to 0.65 GiB in
# logs of vLLM ("non_torch_memory takes ..."); a round figure at the upper end.
OTHER_BYTES = 0.6 * 2**30
# Of each logit while all sequences sample at once: in 32 bits, sorted, and its place in 64 bits.
BYTES_A_LOGIT = 4 + 4 + 8


def weight_bytes_per_gpu(model: ModelShape, parallel: Parallel, bytes_per_weight: float) -> float:
    """Of the largest stage; one of several has one table, the embedding or the head."""
    tables = 1 if model.tied_embeddings or parallel.pp > 1 else 2
    table_bytes = tables * model.embedding_parameters * TABLE_BYTES
    layers = parallel.stage_layers(model) * model.layer_parameters + model.hidden
    return (layers * bytes_per_weight + table_bytes) / parallel.tp


def activation_bytes_per_gpu(
    model: ModelShape, parallel: Parallel, batched_tokens: int, sequences: int
) -> float:
    """The most at once: an MLP on a full budget of tokens, or the logits of all sequences."""
    mlp = 3 * model.intermediate * model.active_experts / parallel.tp
    layer = batched_tokens * (mlp + 2 * model.hidden) * 2
    return max(layer, sequences * model.vocab * BYTES_A_LOGIT)


def kv_bytes_per_token_per_gpu(
    model: ModelShape, parallel: Parallel, bytes_per_value: float
) -> float:
    """Of the largest stage; copies of KV heads count."""
    heads = parallel.kv_heads_per_gpu(model)
    return 2 * parallel.stage_layers(model) * heads * model.head_dim * bytes_per_value
