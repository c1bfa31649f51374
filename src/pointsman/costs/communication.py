"""What the GPUs of one instance say to each other: all-reduces of TP, transfers of PP.

Linear in the tokens of an iteration; a message of 16-bit activations, whatever the weights are.
"""

from __future__ import annotations

from pointsman.costs.devices import Device
from pointsman.costs.iteration import IterationCosts
from pointsman.costs.models import ModelShape
from pointsman.costs.parallel import Parallel

ACTIVATION_BYTES = 2

# Of a link's rate, what a collective of many MB gets: a round figure between 0.65
# (calculon-ai/calculon, systems/a100_80g.json) and 0.84 (376 of 450 GB/s, NVIDIA/nccl#1264).
LINK_USE = 0.75
# Before its first byte comes: 10 us (ai-dynamo/aiconfigurator, systems/*.yaml, p2p_latency).
MESSAGE_LATENCY_MS = 0.01
# After attention and after the MLP (Megatron-LM, arXiv 1909.08053, section 3).
ALL_REDUCES_A_LAYER = 2
# Hidden state and residual cross from stage to stage apart (vllm/model_executor/models/llama.py).
TENSORS_A_TRANSFER = 2


def communication_of(model: ModelShape, device: Device, parallel: Parallel) -> IterationCosts:
    """The part of an iteration that is communication; all zero on one GPU."""
    reduce_ms, token_reduce_ms = _all_reduces(model, device, parallel)
    transfer_ms, token_transfer_ms = _transfers(model, device, parallel)
    token_ms = token_reduce_ms + token_transfer_ms
    return IterationCosts(
        per_iteration_ms=reduce_ms + transfer_ms,
        per_prefill_token_ms=token_ms,
        per_decode_ms=token_ms,
        per_kv_token_ms=0.0,
    )


def _all_reduces(model: ModelShape, device: Device, parallel: Parallel) -> tuple[float, float]:
    """Latency a round, and time a token: a ring moves 2 (tp - 1) / tp of the message a rank."""
    if parallel.tp == 1:
        return 0.0, 0.0
    count = ALL_REDUCES_A_LAYER * parallel.stage_layers(model)
    moved = 2 * (parallel.tp - 1) / parallel.tp * model.hidden * ACTIVATION_BYTES
    token_ms = count * moved / _bytes_per_ms(device.link_gb_per_s)
    return parallel.slots * count * MESSAGE_LATENCY_MS, parallel.token_share * token_ms


def _transfers(model: ModelShape, device: Device, parallel: Parallel) -> tuple[float, float]:
    """The same of pp - 1 boundaries, which a micro-batch crosses one after the other."""
    boundaries = parallel.pp - 1
    inside = parallel.gpus <= device.gpus_per_node
    rate = _bytes_per_ms(device.link_gb_per_s if inside else device.network_gb_per_s)
    token_ms = TENSORS_A_TRANSFER * model.hidden * ACTIVATION_BYTES / rate
    return boundaries * MESSAGE_LATENCY_MS, boundaries / parallel.micro_batches * token_ms


def _bytes_per_ms(gb_per_s: float) -> float:
    return gb_per_s * 1e6 * LINK_USE
