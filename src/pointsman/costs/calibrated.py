"""Calibrated costs: the five parameters, where they come from, how far they hold.

What ``pointsman calibrate --output`` writes, schema ``pointsman.costs/1``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from pointsman.core.errors import InputError, wrong_value
from pointsman.core.files import read_file
from pointsman.costs.fields import (
    AMOUNT,
    COUNT,
    FLAG,
    GROUP,
    POSITIVE,
    TEXT,
    WHOLE,
    Fields,
    check_fields,
)
from pointsman.costs.iteration import IterationCosts
from pointsman.costs.stages import StageCosts
from pointsman.workload.workload import Workload

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


_UNITS = {
    "prompt_tokens": "tokens",
    "output_tokens": "tokens",
    "batch": "requests at once",
    "kv_tokens": "tokens",
    "rate_rps": "requests/s",
}


class Residuals(msgspec.Struct, frozen=True):
    """What the fit left: the loss, and the mean of each relative residual's size."""

    loss: float
    mean_absolute: float


class CostFile(msgspec.Struct, frozen=True):
    """The costs of a recorded engine; a cost model."""

    schema: str
    costs: IterationCosts
    shared_blocks: float
    engine: EngineFacts
    fitted_requests: int
    valid_up_to: ValidityRange
    residuals: Residuals

    def iteration_costs(self) -> IterationCosts:
        """The five parameters, as they were fitted."""
        return self.costs


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """The most that a run asks of one replica; None is not known and not compared."""

    prompt_tokens: int | None = None
    output_tokens: int | None = None
    batch: int | None = None
    kv_tokens: int | None = None
    rate_rps: float | None = None
    engine_model: str | None = None
    engine_version: str | None = None
    served_model: str | None = None


_FILE: Fields = {
    "schema": TEXT,
    "costs": GROUP,
    "shared_blocks": AMOUNT,
    "engine": GROUP,
    "fitted_requests": WHOLE,
    "valid_up_to": GROUP,
    "residuals": GROUP,
}
_GROUPS: dict[str, Fields] = {
    "costs": {
        "per_iteration_ms": POSITIVE,
        "per_prefill_token_ms": AMOUNT,
        "per_decode_ms": AMOUNT,
        "per_kv_token_ms": AMOUNT,
        "per_attention_ms": AMOUNT,
    },
    "engine": {
        "model": TEXT,
        "version": TEXT.or_null(),
        "served_model": TEXT.or_null(),
        "tensor_parallel": WHOLE,
        "engine_cores": WHOLE,
        "max_num_seqs": WHOLE,
        "max_num_batched_tokens": WHOLE,
        "kv_blocks": WHOLE.or_null(),
        "block_size": WHOLE,
        "async_scheduling": FLAG,
    },
    "valid_up_to": {
        "prompt_tokens": WHOLE,
        "output_tokens": WHOLE,
        "batch": COUNT,
        "kv_tokens": COUNT,
        "rate_rps": AMOUNT,
    },
    "residuals": {"loss": AMOUNT, "mean_absolute": AMOUNT},
}


def read_calibrated(path: Path) -> CostFile:
    """The costs of a file that ``calibrate --output`` wrote.

    Raises InputError for any key that is missing, unknown or wrong, naming it; MachineError when
    the file cannot be read.
    """
    try:
        values = msgspec.json.decode(read_file(path))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"{path}: not JSON: {error}; expected a file that pointsman calibrate --output wrote"
        ) from None
    return msgspec.convert(_checked(values, str(path)), CostFile)


def figures_of(workload: Workload, replicas: int = 1) -> RunFigures:
    """What a workload asks of each of so many replicas, if they share it evenly.

    What an engine has at once is for the caller to add: its limits, or what a run showed.
    """
    prompt, output, span_ms = workload.prompt_tokens, workload.output_tokens, workload.span_ms
    gaps = max(len(workload) - 1, 0)
    return RunFigures(
        prompt_tokens=int(prompt.max()) if len(workload) else None,
        output_tokens=int(output.max()) if len(workload) else None,
        rate_rps=gaps * 1000.0 / span_ms / replicas if span_ms > 0 else None,
    )


def outside_range(costs: CostFile, figures: RunFigures) -> list[str]:
    """A sentence for each figure beyond what the costs were fitted to, and each other engine.

    None means inside. Whoever calls decides whether to warn or to refuse.
    """
    return [*_beyond(costs.valid_up_to, figures), *_other_engine(costs.engine, figures)]


def _beyond(limits: ValidityRange, figures: RunFigures) -> Iterator[str]:
    for name in ValidityRange.__struct_fields__:
        value, limit = getattr(figures, name), getattr(limits, name)
        if value is not None and value > limit:
            most = f"{limit:,.6g} {_UNITS[name]}"
            yield f"{name} is {value:,.6g} and the costs were fitted up to {most}"


def _other_engine(engine: EngineFacts, figures: RunFigures) -> Iterator[str]:
    pairs = (
        ("engine model", figures.engine_model, engine.model),
        ("engine version", figures.engine_version, engine.version),
        ("served model", figures.served_model, engine.served_model),
    )
    for name, value, recorded in pairs:
        if value is not None and _bare(value) != _bare(recorded):
            yield f"{name} is {value} and the costs were fitted to {recorded or 'one not recorded'}"


def _bare(name: str | None) -> str | None:
    """A version without the v of its tag: v0.19.0 is 0.19.0."""
    return name[1:] if name and name[0] == "v" and name[1:2].isdigit() else name


def _checked(values: object, where: str) -> dict[str, Any]:
    if isinstance(values, dict) and values.get("schema", SCHEMA) != SCHEMA:
        wanted = f"{SCHEMA!r}, as pointsman calibrate --output writes it"
        raise wrong_value(where, "schema", values["schema"], wanted)
    if isinstance(values, dict) and values.keys() & set(StageCosts.__struct_fields__):
        raise InputError(
            f"{where}: cost constants of replicas that serve one request at a time, which go with"
            " --replicas; expected a file that pointsman calibrate --output wrote"
        )
    checked = check_fields(values, _FILE, where)
    for name, fields in _GROUPS.items():
        check_fields(checked[name], fields, f"{where}: {name}")
    return checked
