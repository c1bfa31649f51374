"""Replicas of one kind: how many, on what, doing what."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pointsman.core.errors import InputError
from pointsman.costs.calibrated import CostFile
from pointsman.costs.roofline import Instance
from pointsman.fleet.engines import engine_of_costs, engine_of_instance
from pointsman.sim.batching import Engine

PREFILL, DECODE = "prefill", "decode"
ROLES = (PREFILL, DECODE)

# vLLM's words for its --scheduling-policy (vllm/config/scheduler.py), the default first.
FCFS, PRIORITY = "fcfs", "priority"
SCHEDULING_POLICIES = (FCFS, PRIORITY)


@dataclass(frozen=True, slots=True)
class Recorded:
    """An engine that was calibrated, and the file that says how.

    ``serving_version`` is that of the engine that will serve; None is not known.
    """

    path: str
    file: CostFile
    serving_version: str | None = None

    @property
    def gpus(self) -> int:
        """GPUs of one core, which is one replica."""
        return self.file.engine.tensor_parallel

    @property
    def name(self) -> str:
        """What was recorded, and where that stands."""
        served = self.file.engine.served_model or "a model not recorded"
        return f"{served} as calibrated in {self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What engines are set to; None leaves what the hardware or the recording says.

    ``kv_blocks`` counts blocks of the fleet's block size. ``scheduling_policy`` is one of
    SCHEDULING_POLICIES.
    """

    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    kv_blocks: int | None = None
    max_model_len: int | None = None
    scheduling_policy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """``count`` replicas alike; ``role`` is None where each does prefill and decode."""

    count: int
    hardware: Instance | Recorded
    role: str | None = None
    limits: Limits = Limits()

    @property
    def gpus(self) -> int:
        """GPUs of all of them."""
        return self.count * self.hardware.gpus

    @property
    def name(self) -> str:
        """The group in words: ``4 x llama-3.1-8b on h100-sxm, tp 2``."""
        hardware = self.hardware
        what = hardware.name if isinstance(hardware, Recorded) else _name_of(hardware)
        return f"{self.count:,} x {what}" + (f", {self.role}" if self.role else "")

    def engine(self, block_size: int) -> Engine:
        """Each replica of the group, its cache in blocks of so many tokens.

        Raises InputError where the model does not fit, or a recording does not tell the blocks.
        """
        if isinstance(self.hardware, Recorded):
            engine = _recorded_engine(self.hardware, self.limits, block_size)
        else:
            engine = engine_of_instance(self.hardware, block_size)
        given = self.limits
        return replace(
            engine,
            kv_blocks=_or(given.kv_blocks, engine.kv_blocks),
            max_num_seqs=_or(given.max_num_seqs, engine.max_num_seqs),
            max_num_batched_tokens=_or(given.max_num_batched_tokens, engine.max_num_batched_tokens),
            max_model_len=_or(given.max_model_len, engine.max_model_len),
            by_priority=given.scheduling_policy == PRIORITY,
        )


def _name_of(instance: Instance) -> str:
    shape = f", tp {instance.tp}" if instance.tp > 1 else ""
    shape += f", pp {instance.pp}" if instance.pp > 1 else ""
    return f"{instance.model.name} on {instance.device.name}{shape}"


def _recorded_engine(recorded: Recorded, limits: Limits, block_size: int) -> Engine:
    """The recorded cache, cut into whole blocks of another size."""
    facts = recorded.file.engine
    if facts.kv_blocks is None and limits.kv_blocks is None:
        raise InputError(
            f"{recorded.path}: engine.kv_blocks is null, the recording did not tell;"
            " expected kv_blocks of the group, or --kv-blocks N"
        )
    engine = engine_of_costs(recorded.file, _or(limits.kv_blocks, facts.kv_blocks or 1))
    blocks = engine.kv_blocks * facts.block_size // block_size
    if limits.kv_blocks is None and blocks < 1:
        raise InputError(
            f"{recorded.path}: {facts.kv_blocks:,} KV blocks of {facts.block_size} tokens are less"
            f" than one of {block_size}; expected a smaller block size"
        )
    return replace(engine, kv_blocks=max(1, blocks), block_size=block_size)


def _or(given: int | None, otherwise: int) -> int:
    return otherwise if given is None else given
