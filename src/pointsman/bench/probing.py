"""What stands between a request and a group's engines, seen on a few requests before the load.

Requests one after the other, of lengths as in the workload and with text of their own, go through
the group's own router to engines that do nothing else. Caches are emptied after it. What no engine
tells (vLLM's hand-off over a folder has no time) stays unknown.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pointsman.bench.client.arrivals import ClosedLoop
from pointsman.bench.client.load import Load
from pointsman.bench.client.measure import measure
from pointsman.bench.client.target import Target
from pointsman.bench.groups import (
    Bench,
    Serving,
    asked_for,
    dialect_of,
    lengths_of_group,
    served_by,
)
from pointsman.bench.router import routed
from pointsman.bench.stages.joined import joined
from pointsman.bench.stages.rows import JoinedRow
from pointsman.bench.stages.served import ServedLoad
from pointsman.core.errors import InputError
from pointsman.workload.workload import Workload, workload_of_columns

PROBES = 10
_ANSWER_TOKENS = 4
_SEED = 1 << 40  # no repeat's prompts are of it
_LEAST = 4  # requests that a line is drawn through
_NO_LIMIT = 1e12  # bytes a ms: what is moved takes no time that was seen


@dataclass(frozen=True, slots=True)
class MeasuredHandoff:
    """``base_ms`` and then so many bytes a ms; ``bytes_per_token``: of a prompt."""

    base_ms: float
    bytes_per_ms: float
    bytes_per_token: float


@dataclass(frozen=True, slots=True)
class Probed:
    """Medians in ms. ``router_ms``: both ways through it; None where it is not known.

    ``decode_wait_ms``: of a pair, from the end of a hand-off to the first token.
    """

    router_ms: float | None
    decode_wait_ms: float | None
    handoff: MeasuredHandoff | None


def probed(bench: Bench, group: Serving) -> Probed:
    """Send the probes. Raises GroupError, and InputError for a group without a router."""
    run = group.run
    name = f"probe-{run.name}"
    asked = asked_for(bench, run, name, group.handoff)
    if asked is None:
        raise InputError(f"{run.name}: has no router; expected a group that has one")
    lengths = lengths_of_group(bench, group)
    log = bench.logs / run.name / "probe.log"
    with routed(asked, group.replicas, log) as router:
        target = Target(
            router.url, bench.model.name, dialect_of(bench.engine, group.replicas[0].url)
        )
        load = Load(probes_of(bench.workload), ClosedLoop(1), name=name, seed=_SEED)
        seen = measure(target, load, lengths=lengths)
    if not seen.is_complete:
        raise KeyboardInterrupt  # it was told to end
    served = served_by(bench, group.replicas)
    rows = joined(served, [ServedLoad(seen.rows, (asked.decision_log,))]).loads[0].rows
    return probed_of(rows)


def probes_of(workload: Workload) -> Workload:
    """Requests whose prompts are as long as the workload's are, from the shortest to the longest;
    each of its own text."""
    lengths = np.quantile(workload.prompt_tokens, np.linspace(0.0, 1.0, PROBES))
    return workload_of_columns(
        np.zeros(PROBES),
        prompt_tokens=np.rint(lengths).astype(int),
        output_tokens=np.full(PROBES, _ANSWER_TOKENS),
    )


def probed_of(rows: Sequence[JoinedRow]) -> Probed:
    """The figures of probes that were answered."""
    return Probed(
        router_ms=_median([row.router_ms for row in rows]),
        decode_wait_ms=_median([row.decode_wait_ms for row in rows]),
        handoff=_handoff(rows),
    )


def _handoff(rows: Sequence[JoinedRow]) -> MeasuredHandoff | None:
    """The least squares line of time over bytes; through what lies below 0 there is none."""
    known = [
        (row.handoff_bytes, row.handoff_ms, row.prompt_tokens)
        for row in rows
        if row.handoff_bytes and row.handoff_ms is not None and row.prompt_tokens
    ]
    if len(known) < _LEAST:
        return None
    moved, took_ms, tokens = np.array(known, dtype=np.float64).T
    mean_ms, slope = float(took_ms.mean()), 0.0
    if moved.std() > 0.1 * moved.mean():  # else all are alike
        slope = float(np.polyfit(moved, took_ms, 1)[0])
    base_ms = mean_ms - slope * float(moved.mean())
    if slope <= 0.0:
        slope, base_ms = 0.0, mean_ms
    elif base_ms < 0.0:
        slope, base_ms = float((moved @ took_ms) / (moved @ moved)), 0.0
    rate = 1.0 / slope if slope else _NO_LIMIT
    return MeasuredHandoff(base_ms, rate, float(np.median(moved / tokens)))


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
