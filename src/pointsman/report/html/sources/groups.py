"""A measured group as a run: its metrics with intervals, and what its requests' rows add."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from pointsman.bench.client.figures import seen_of
from pointsman.bench.client.rows import Row
from pointsman.evidence.decision_file import GroupDecision
from pointsman.evidence.envelope import Bounds, MechanismRun, ServingGroup
from pointsman.evidence.figures import REPORTED
from pointsman.evidence.metrics import METRIC_NAMES
from pointsman.metrics.distribution import quantiles_of
from pointsman.metrics.latency import Answers, spread_of
from pointsman.metrics.reasons import ReasonsOverTime, reasons_over_time
from pointsman.report.html.result import (
    MEASURED,
    SIMULATED,
    Difference,
    Figure,
    Latency,
    Run,
    Share,
)
from pointsman.workload.workload import Floats

_COLUMNS: dict[str, Callable[[Answers], Floats]] = {
    "ttft_ms": lambda answers: answers.ttft_ms,
    "tpot_ms": lambda answers: answers.tpot_ms,
    "e2e_ms": lambda answers: answers.e2e_ms,
}

Repeats = Sequence[Sequence[Row]]


def run_of_group(group: ServingGroup, rows: Repeats, decision: GroupDecision | None) -> Run:
    """One group; its rows, a list a repeat, may be missing."""
    layout, level = group.layout, group.evidence_level
    reasons = Counter(row.reason for repeat in rows for row in repeat if row.reason is not None)
    return Run(
        name=group.group,
        origin=SIMULATED if level == "simulation" else MEASURED,
        policy=layout.policy or "",
        gpus=layout.replicas * layout.tp * layout.pp if level == "real_engine_gpu" else None,
        offered_rps=group.workload.rate_rps,
        latencies=dict(_latencies(rows)),
        figures=_figures(group),
        shares=tuple(_shares(group)),
        reasons=dict(reasons),
        reasons_over_time=_over_time(rows, tuple(reasons)),
        differences=tuple(_differences(decision)),
    )


def mechanism_runs(run: MechanismRun) -> Iterator[Run]:
    """A run a strategy: how long its slowest rank took."""
    for row in run.metrics.rows:
        slowest = [each.max_rank_makespan_ms for each in row.repeats]
        low, high = (min(slowest), max(slowest)) if len(slowest) > 1 else (None, None)
        figure = Figure(row.max_rank_makespan_ms, low, high)
        yield Run(name=row.strategy, origin=MEASURED, figures={"max_rank_makespan_ms": figure})


def _latencies(rows: Repeats) -> Iterator[tuple[str, Latency]]:
    """Of all repeats' requests together, as the group's own figures are."""
    answers = [seen_of(repeat).answers for repeat in rows if repeat]
    if not answers:
        return
    for name, column in _COLUMNS.items():
        values = np.concatenate([column(each) for each in answers])
        yield name, Latency(spread_of(values), quantiles_of(values))


def _figures(group: ServingGroup) -> dict[str, Figure]:
    found = {
        name: _figure(value, group.details[name].interval)
        for name in METRIC_NAMES
        if (value := group.metrics.of(name)) is not None
    }
    figures: dict[str, Figure] = {str(name): figure for name, figure in found.items()}
    if group.goodput is not None and group.goodput.fraction is not None:
        figures["goodput_fraction"] = Figure(group.goodput.fraction)
    return figures


def _figure(value: float, bounds: Bounds | None) -> Figure:
    return Figure(value) if bounds is None else Figure(value, bounds.low, bounds.high)


def _shares(group: ServingGroup) -> Iterator[Share]:
    """Requests and tokens of each replica in all repeats together."""
    requests: Counter[tuple[str, str]] = Counter()
    tokens: Counter[tuple[str, str]] = Counter()
    for repeat in group.repeats:
        for load in repeat.loads:
            requests[load.replica, load.pool] += load.requests
            tokens[load.replica, load.pool] += load.tokens
    for (replica, pool), count in requests.items():
        yield Share(replica, pool, count, tokens=tokens[replica, pool])


def _over_time(rows: Repeats, names: tuple[str, ...]) -> ReasonsOverTime | None:
    """By when requests were due in their repeat; all repeats together."""
    told = [row for repeat in rows for row in repeat if row.reason in names]
    if not told:
        return None
    times = np.array([row.intended_ms for row in told])
    return reasons_over_time(times, np.array([names.index(str(r.reason)) for r in told]), names)


def _differences(decision: GroupDecision | None) -> Iterator[Difference]:
    if decision is None:
        return
    for each in decision.metrics:
        if each.verdict != REPORTED and None not in (
            each.baseline,
            each.candidate,
            each.low,
            each.high,
        ):
            value = (each.candidate or 0.0) - (each.baseline or 0.0)
            interval = Figure(value, each.low, each.high)
            yield Difference(each.name, interval, each.verdict, decision.baseline)
