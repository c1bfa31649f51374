"""An engine of the simulator from a model on GPUs, or from a calibrated file."""

from __future__ import annotations

from pointsman.core.errors import InputError
from pointsman.costs.calibrated import CostFile
from pointsman.costs.roofline import Instance
from pointsman.sim.batching import Engine, Split


def engine_of_instance(instance: Instance, block_size: int = 16) -> Engine:
    """The engine that serves a model on one instance, prompts and answers up to its context.

    Raises InputError where the model does not fit, or the block size is none.
    """
    return Engine(
        costs=instance.iteration_costs(),
        kv_blocks=instance.kv_blocks(block_size),
        block_size=block_size,
        max_num_seqs=instance.max_num_seqs,
        max_num_batched_tokens=instance.max_num_batched_tokens,
        max_model_len=instance.model.max_context_tokens,
    )


def engine_of_costs(file: CostFile, kv_blocks: int | None = None) -> Engine:
    """One core of the engine that was recorded.

    Raises InputError where the file does not say how many KV blocks it has, and none are given.
    """
    facts = file.engine
    blocks = facts.kv_blocks if kv_blocks is None else kv_blocks
    if blocks is None:
        raise InputError(
            "cost file: engine.kv_blocks is null, the recording did not tell; expected a number of"
            " KV blocks to go with it"
        )
    return Engine(
        costs=file.iteration_costs(),
        kv_blocks=blocks,
        block_size=facts.block_size,
        max_num_seqs=facts.max_num_seqs,
        max_num_batched_tokens=facts.max_num_batched_tokens,
        async_scheduling=facts.async_scheduling,
    )


def split_of_instances(
    prefill: Instance, count: int, base_ms: float = 0.0, bytes_per_ms: float | None = None
) -> Split:
    """Prefill and decode apart, ``count`` instances for the one, over the devices' own link.

    ``bytes_per_ms`` overrides the link's rate.
    """
    rate = prefill.device.link_gb_per_s * 1e6 if bytes_per_ms is None else bytes_per_ms
    return Split(
        prefill=count,
        kv_bytes_per_token=prefill.model.kv_bytes_per_token(prefill.bytes_per_kv_value),
        bytes_per_ms=rate,
        base_ms=base_ms,
    )
