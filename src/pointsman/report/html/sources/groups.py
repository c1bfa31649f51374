"""A measured group as a run: its metrics with intervals, and what its requests' rows add."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np

from pointsman.bench.stages.joined import answers_of
from pointsman.bench.stages.rows import JoinedRow
from pointsman.bench.stages.served import Served
from pointsman.evidence.decision_file import GroupDecision
from pointsman.evidence.envelope import Bounds, MechanismRun, ServingGroup
from pointsman.evidence.figures import REPORTED, Compared
from pointsman.evidence.group import Group
from pointsman.evidence.metrics import METRIC_NAMES
from pointsman.fleet.objectives import with_objectives
from pointsman.metrics.distribution import quantiles_of
from pointsman.metrics.goodput import Objectives
from pointsman.metrics.latency import Answers, spread_of
from pointsman.metrics.reasons import ReasonsOverTime, reasons_over_time
from pointsman.policies.catalogue import POLICIES, policy_named
from pointsman.report.html.result import (
    MEASURED,
    QUOTED,
    SIMULATED,
    Difference,
    Figure,
    Latency,
    Run,
    Share,
)
from pointsman.workload.workload import Floats

_COLUMNS: dict[str, Callable[[Answers], Floats | None]] = {
    "queue_wait_ms": lambda answers: answers.queue_wait_ms,
    "ttft_ms": lambda answers: answers.ttft_ms,
    "tpot_ms": lambda answers: answers.tpot_ms,
    "e2e_ms": lambda answers: answers.e2e_ms,
    "handoff_ms": lambda answers: _finished(answers, answers.handoff_ms),
}

_SOMEBODY = "a prefill replica"  # which one it is no figure here asks

Repeats = Sequence[Sequence[JoinedRow]]


def run_of_group(group: ServingGroup, rows: Repeats, decision: GroupDecision | None) -> Run:
    """One group; its rows, a list a repeat, may be missing."""
    level = group.evidence_level
    policy, parameters = _rule(group)
    reasons = Counter(row.reason for repeat in rows for row in repeat if row.reason is not None)
    return Run(
        name=group.group,
        origin=SIMULATED if level == "simulation" else MEASURED,
        policy=policy,
        parameters=parameters,
        workload=group.workload.sha256,
        fleet=_fleet(group),
        offered_rps=group.workload.rate_rps,
        latencies=dict(_latencies(group, rows)),
        stages={each.name: each.mean_ms for each in group.stages if each.name != "e2e"},
        figures=_figures(group),
        shares=tuple(_shares(group)),
        reasons=dict(reasons),
        reasons_over_time=_over_time(rows, tuple(reasons)),
        differences=tuple(_differences(decision)),
    )


def _rule(group: ServingGroup) -> tuple[str, dict[str, float]]:
    """The policy's name and its parameters, told the objectives as the router was; of a user's
    file, which is not loaded for that, as it is named."""
    text = group.layout.policy or ""
    if text.partition(":")[0] not in POLICIES:
        return text, {}
    asked = None if group.goodput is None else group.goodput.objectives
    told = None if asked is None else Objectives(asked.ttft_ms, asked.tpot_ms, asked.e2el_ms)
    (policy,) = with_objectives([text], [policy_named(text)], told)
    return policy.name, dict(policy.parameters)


def _fleet(group: ServingGroup) -> str:
    """A text that is equal where the shape, the engine and the hardware are."""
    shape = msgspec.structs.replace(group.layout, policy=None)
    engine = group.backend.engine, group.backend.version, group.backend.model
    return msgspec.json.encode((shape, engine, group.hardware), order="sorted").decode()


def run_of_other(group: Group) -> Run:
    """A group of somebody else's file: its figures as they are stated, without intervals."""
    figures = {str(name): each.value for name, each in group.figures.items()}
    return Run(
        name=group.name,
        origin=QUOTED,
        policy=str(group.shape.policy or ""),
        figures={name: Figure(value) for name, value in figures.items() if value is not None},
    )


def mechanism_runs(run: MechanismRun) -> Iterator[Run]:
    """A run a strategy: how long its slowest rank took."""
    for row in run.metrics.rows:
        slowest = [each.max_rank_makespan_ms for each in row.repeats]
        low, high = (min(slowest), max(slowest)) if len(slowest) > 1 else (None, None)
        figure = Figure(row.max_rank_makespan_ms, low, high)
        yield Run(name=row.strategy, origin=MEASURED, figures={"max_rank_makespan_ms": figure})


def _latencies(group: ServingGroup, rows: Repeats) -> Iterator[tuple[str, Latency]]:
    """Of all repeats' requests together, as the group's own figures are."""
    handoff = group.layout.handoff
    served = Served(None, (), (_SOMEBODY,) if handoff else (), handoff)
    answers = [answers_of(repeat, served) for repeat in rows if repeat]
    for name, column in _COLUMNS.items():
        known = [values for each in answers if (values := column(each)) is not None]
        values = np.concatenate([*known, np.empty(0)])
        if not np.isnan(values).all():
            yield name, Latency(spread_of(values), quantiles_of(values))


def _finished(answers: Answers, column: Floats | None) -> Floats | None:
    return None if column is None else answers.of_finished(column)


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
    """Requests of each replica in all repeats together."""
    requests: Counter[tuple[str, str]] = Counter()
    for repeat in group.repeats:
        for load in repeat.loads:
            requests[load.replica, load.pool] += load.requests
    for (replica, pool), count in requests.items():
        yield Share(replica, pool, count)


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
        value = _difference(each)
        if each.verdict != REPORTED and value is not None and None not in (each.low, each.high):
            interval = Figure(value, each.low, each.high)
            yield Difference(each.name, interval, each.verdict, decision.baseline)


def _difference(each: Compared) -> float | None:
    """As it was decided on; an earlier version's decision has only the two that it is of."""
    if each.difference is not None or each.candidate is None or each.baseline is None:
        return each.difference
    return each.candidate - each.baseline
