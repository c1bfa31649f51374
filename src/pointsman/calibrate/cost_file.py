"""Calibrated costs as a file: the five parameters, where they come from, how far they hold."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pointsman.core.files import whole_file
from pointsman.costs.iteration import IterationCosts

SCHEMA = "pointsman.costs/1"


class EngineFacts(msgspec.Struct, frozen=True):
    """Which engine was recorded, and how it is to be simulated."""

    model: str  # of the engine, as in docs/simulator.md
    version: str | None
    served_model: str | None
    tensor_parallel: int
    engine_cores: int
    max_num_seqs: int
    max_num_batched_tokens: int
    kv_blocks: int | None  # None: not recorded, taken as never full
    block_size: int
    async_scheduling: bool


class ValidityRange(msgspec.Struct, frozen=True):
    """The most that was seen in the requests fitted to."""

    prompt_tokens: int
    output_tokens: int
    batch: int
    kv_tokens: int
    rate_rps: float


class Residuals(msgspec.Struct, frozen=True):
    """What the fit left: the loss, and the mean of each relative residual's size."""

    loss: float
    mean_absolute: float


class CostFile(msgspec.Struct, frozen=True):
    """What ``calibrate --output`` writes."""

    schema: str
    costs: IterationCosts
    shared_blocks: float
    engine: EngineFacts
    fitted_requests: int
    valid_up_to: ValidityRange
    residuals: Residuals


def write_cost_file(path: Path, content: CostFile) -> None:
    """Write it, whole or not at all."""
    text = msgspec.json.format(msgspec.json.encode(content), indent=2)
    with whole_file(path) as file:
        file.write(text + b"\n")
