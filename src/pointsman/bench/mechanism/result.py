"""The file of a mechanism run: the fields of the lesson on serving replica routing, and more.

``project``, ``workload``, ``hardware``, ``environment_profile``, ``metrics.rows[]``,
``evidence_level``, ``failure`` and ``decision`` are the lesson's, and so are the first five fields
of a row; what is added stands under further names. A failed run has no rows.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec

from pointsman.core.errors import InputError, MachineError

SCHEMA = "pointsman.evidence/1"
PROJECT = "PAR-REPLICA"
ON_GPUS = "PAR-CUDA-MECHANISM"
ON_CPU = "PAR-CPU-MECHANISM"
LEVELS = {ON_GPUS: "mechanism_on_gpus", ON_CPU: "mechanism_on_cpu"}

DEFINITIONS = {
    "request_cost_units_per_rank": "products that each rank made in one repeat, as it counted them",
    "rank_elapsed_ms": "of each rank, its time for its own queue; the mean over the repeats",
    "max_rank_makespan_ms": "the largest of rank_elapsed_ms",
    "throughput_requests_per_s_proxy": "requests / max_rank_makespan_ms * 1000; products stand for"
    " requests, so it is no rate of serving",
    "repeats[].makespan_ms": "the largest of that repeat's rank_elapsed_ms",
    "repeats[].position": "which of all measured rounds it was, from 0; strategies take turns in"
    " the order A B B A",
}


class MechanismWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """What was computed."""

    workload_id: str
    run_label: str
    mode: str
    request_costs: tuple[int, ...]
    cost_unit: str
    compute_dim: int
    dtype: str
    warmup: int
    repeats: int
    world_size: int
    seed: int


class MechanismHardware(msgspec.Struct, frozen=True, kw_only=True):
    """On what; null where the run failed before it was known."""

    process_group: str  # nccl or gloo
    world_size: int
    devices: tuple[str, ...] | None = None  # by rank
    threads_per_rank: int | None = None
    torch: str | None = None
    cuda: str | None = None
    nccl: str | None = None


class Repeat(msgspec.Struct, frozen=True, kw_only=True):
    """One measured round of one strategy."""

    position: int
    rank_elapsed_ms: tuple[float, ...]
    makespan_ms: float


class MechanismRow(msgspec.Struct, frozen=True, kw_only=True):
    """One strategy."""

    strategy: str
    request_cost_units_per_rank: tuple[int, ...]
    rank_elapsed_ms: tuple[float, ...]
    max_rank_makespan_ms: float
    throughput_requests_per_s_proxy: float
    policy: str
    repeats: tuple[Repeat, ...]


class MechanismMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """One row a strategy, in the order of the lesson; none where the run failed."""

    rows: tuple[MechanismRow, ...] = ()


class MechanismFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no result."""

    stage: str
    reason: str
    retry: str


class MechanismResult(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="mechanism"):
    """One run."""

    schema: str = SCHEMA
    project: str = PROJECT
    pointsman: str
    workload: MechanismWorkload
    hardware: MechanismHardware
    environment_profile: str
    metrics: MechanismMetrics
    definitions: dict[str, str]
    evidence_level: str
    failure: MechanismFailure | None = None
    decision: None = None  # a verdict stands beside the file, never in it


def read_result(path: Path, content: bytes) -> MechanismResult:
    """The run of a file that ``write_new`` wrote; InputError, naming the field, for another."""
    try:
        return msgspec.json.decode(content, type=MechanismResult)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: is no file of a mechanism run: {error}") from None


def write_new(path: Path, result: MechanismResult) -> None:
    """Write a file that was not there, whole or not at all; its folder is made.

    Raises InputError where something is there meanwhile, MachineError where it cannot be written.
    """
    text = msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n"
    temporary = _temporary_file(path, text)
    try:
        os.link(temporary, path)  # unlike a rename it never takes the place of another file
    except FileExistsError:
        raise InputError(
            f"{path}: somebody else wrote it meanwhile, and results are never overwritten;"
            " expected a name of this run's own"
        ) from None
    except OSError as error:
        raise MachineError(f"cannot write {path}: {error.strerror}") from None
    finally:
        os.unlink(temporary)


def _temporary_file(path: Path, text: bytes) -> str:
    """A file in the folder of ``path``, which is made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
    except OSError as error:
        raise MachineError(f"cannot write {path}: {error.strerror}") from None
    return temporary
