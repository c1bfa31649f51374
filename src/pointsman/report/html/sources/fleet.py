"""A comparison on a fleet that batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import msgspec

from pointsman.comparison.over_time import OverTime
from pointsman.metrics.latency import Spread
from pointsman.metrics.reasons import ReasonsOverTime
from pointsman.metrics.replicas import ReplicaFigures, Skews
from pointsman.metrics.stages import MeanStages
from pointsman.report.html.result import (
    SIMULATED,
    AnswerTable,
    Column,
    Difference,
    Figure,
    Result,
    Run,
    Share,
)
from pointsman.report.html.sources.decoding import (
    Advice,
    AuditFacts,
    Quantiles,
    WorkloadFacts,
    decoded,
    fleet_identity,
    latency,
    short_names,
    stated,
    workload_basis,
)
from pointsman.report.surroundings import surroundings
from pointsman.sim.conditions import NOTHING_SPECIAL, Conditions

_COLUMNS = (
    Column("policy"),
    Column("goodput", percent=True),
    Column("TTFT P50 ms"),
    Column("TTFT P95 ms"),
    Column("TTFT P99 ms"),
    Column("TPOT P95 ms"),
    Column("E2E P95 ms"),
    Column("E2E P99 ms"),
    Column("cached tokens", percent=True),
    Column("token skew"),
    Column("tokens/s/GPU"),
    Column("finished"),
    Column("offered"),
)
_RATES = ("output_tokens_per_s_per_gpu", "cached_token_fraction")


class _Interval(msgspec.Struct, frozen=True):
    estimate: float
    low: float | None
    high: float | None
    level: float


class _Difference(msgspec.Struct, frozen=True):
    figure: str
    interval: _Interval | None
    verdict: str


class _Goodput(msgspec.Struct, frozen=True):
    fraction: float | None


class _Handoff(msgspec.Struct, frozen=True):
    transfer_ms: Spread
    bytes: int | None
    seat_wait_ms: Spread = Spread()


class Statuses(msgspec.Struct, frozen=True):
    """How many requests ended in which way."""

    finished: int


class ServingFacts(msgspec.Struct, frozen=True):
    """The figures of a fleet that serves tokens."""

    offered: int
    statuses: Statuses
    queue_wait_ms: Spread
    ttft_ms: Spread
    tpot_ms: Spread
    e2e_ms: Spread
    output_tokens_per_s_per_gpu: float
    goodput: _Goodput | None
    cached_token_fraction: float | None
    handoff: _Handoff | None = None
    stages: MeanStages = MeanStages()


class _Result(msgspec.Struct, frozen=True):
    policy: str
    label: str
    parameters: dict[str, float]
    metrics: ServingFacts
    skews: dict[str, Skews]
    to_baseline: tuple[_Difference, ...]
    reasons: dict[str, int]
    replicas: tuple[ReplicaFigures, ...]
    locality_audit: AuditFacts | None = None
    over_time: OverTime | None = None
    quantiles: Quantiles = {}
    intervals: dict[str, _Interval | None] = {}
    reasons_over_time: ReasonsOverTime | None = None


_QUOTED, _FITTED = "quoted: a roofline of data sheets", "fitted to measured engines: {}"


class _Group(msgspec.Struct, frozen=True):
    count: int
    model: str | None
    device: str | None
    costs_from: str
    role: str | None = None
    tp: int = 1
    pp: int = 1


class _Link(msgspec.Struct, frozen=True):
    prefill: int


class _Fleet(msgspec.Struct, frozen=True):
    replicas: int
    gpus: int
    model: str
    seed: int
    groups: tuple[_Group, ...]
    link: _Link | None = None
    conditions: Conditions = NOTHING_SPECIAL


class _Document(msgspec.Struct, frozen=True):
    workload: WorkloadFacts
    fleet: _Fleet
    objectives: dict[str, float | None] | None
    baseline: str
    results: tuple[_Result, ...]
    warnings: tuple[str, ...]
    advice: Advice


def fleet_result(document: Any, label: str) -> Result:
    """A ``pointsman.fleet-comparison/1`` document."""
    facts = decoded(document, _Document, label)
    names = short_names([(each.policy, each.label) for each in facts.results])
    labels = [each.label for each in facts.results]
    baseline = dict(zip(labels, names, strict=True)).get(facts.baseline, facts.baseline)
    return Result(
        label=label,
        kind="comparison of policies on a fleet that batches",
        verdict=facts.advice.sentence,
        tables=(AnswerTable("All policies", _COLUMNS, tuple(map(_row, facts.results))),),
        basis=tuple(_basis(facts)),
        warnings=facts.warnings,
        runs=tuple(
            _run(each, name, baseline, facts, fleet_identity(document))
            for each, name in zip(facts.results, names, strict=True)
        ),
    )


def _row(result: _Result) -> tuple[str | float | None, ...]:
    m = result.metrics
    return (
        result.label,
        None if m.goodput is None else m.goodput.fraction,
        *(m.ttft_ms.p50, m.ttft_ms.p95, m.ttft_ms.p99, m.tpot_ms.p95, m.e2e_ms.p95, m.e2e_ms.p99),
        m.cached_token_fraction,
        max((each.tokens for each in result.skews.values()), default=None),
        m.output_tokens_per_s_per_gpu,
        m.statuses.finished,
        m.offered,
    )


def _basis(facts: _Document) -> Iterator[tuple[str, str]]:
    fleet = facts.fleet
    yield from workload_basis(facts.workload)
    yield "Fleet", f"{_groups(fleet)}; {fleet.gpus} GPUs"
    if around := "; ".join(surroundings(fleet.conditions)):
        yield "Conditions", around
    yield "Origin", f"simulated, engine model {fleet.model}; {_costs(fleet)}"
    yield "Seed", str(fleet.seed)
    yield "Interval", _interval(facts)
    if facts.objectives:
        limits = facts.objectives.items()
        named = [f"{name.removesuffix('_ms').upper()} {v:g} ms" for name, v in limits if v]
        yield "Objectives", ", ".join(named)


def _groups(fleet: _Fleet) -> str:
    return " + ".join(
        f"{_device(each)}"
        f"{'' if each.tp == 1 else f', TP {each.tp}'}{'' if each.pp == 1 else f', PP {each.pp}'}"
        f"{'' if each.role is None else f', {each.role}'}"
        for each in fleet.groups
    )


def _costs(fleet: _Fleet) -> str:
    """How every group came to its costs."""
    sources = [group.costs_from for group in fleet.groups]
    told = [_QUOTED if each == "roofline" else _FITTED.format(each) for each in sources]
    if len(set(told)) == 1:
        return f"costs {told[0]}"
    parts = [f"of {_device(g)} {each}" for g, each in zip(fleet.groups, told, strict=True)]
    return f"costs {'; '.join(parts)}"


def _device(group: _Group) -> str:
    return f"{group.count} x {group.model or 'a model'} on {group.device or 'recorded engines'}"


def _interval(facts: _Document) -> str:
    known = [
        by.interval.level
        for each in facts.results
        for by in each.to_baseline
        if by.interval is not None
    ]
    if not known:
        return "none: one policy, or too few requests"
    return (
        f"{stated(known[0])}, of differences on the same requests, resampled in blocks; it does not"
        " know the model's own error"
    )


def _run(result: _Result, name: str, against: str, facts: _Document, fleet: str) -> Run:
    """``against`` is the baseline's name."""
    m = result.metrics
    split = 0 if facts.fleet.link is None else facts.fleet.link.prefill
    return Run(
        name=name,
        origin=SIMULATED,
        policy=result.policy,
        parameters=result.parameters,
        workload=facts.workload.identity,
        fleet=fleet,
        offered_rps=None if facts.fleet.conditions.closed_loop else facts.workload.offered_rps,
        latencies={
            name: latency(spread, result.quantiles, name) for name, spread in spreads_of(m).items()
        },
        figures={**figures_of(m), **_with_intervals(result)},
        stages=stages_of(m),
        shares=tuple(_shares(result, split)),
        skews={pool: _skews(each) for pool, each in result.skews.items()},
        over_time=result.over_time,
        reasons=result.reasons,
        reasons_over_time=result.reasons_over_time,
        audit=None if result.locality_audit is None else result.locality_audit.audit,
        differences=tuple(
            Difference(by.figure, _figure(by.interval), by.verdict, against)
            for by in result.to_baseline
        ),
    )


def spreads_of(metrics: ServingFacts) -> dict[str, Spread]:
    """The latencies that there are."""
    spreads = {
        "queue_wait_ms": metrics.queue_wait_ms,
        "ttft_ms": metrics.ttft_ms,
        "tpot_ms": metrics.tpot_ms,
        "e2e_ms": metrics.e2e_ms,
    }
    if metrics.handoff is not None:
        spreads["handoff_ms"] = metrics.handoff.transfer_ms
        spreads["seat_wait_ms"] = metrics.handoff.seat_wait_ms
    return {name: spread for name, spread in spreads.items() if spread.count}


def stages_of(metrics: ServingFacts) -> dict[str, float]:
    """The mean stages that are known, by the names that measured ones have."""
    stages = asdict(metrics.stages).items()
    return {name.removesuffix("_ms"): mean_ms for name, mean_ms in stages if mean_ms is not None}


def figures_of(metrics: ServingFacts) -> dict[str, Figure]:
    """The figures that are no latencies, those that are known."""
    values = {name: getattr(metrics, name) for name in _RATES}
    values["goodput_fraction"] = None if metrics.goodput is None else metrics.goodput.fraction
    values["handoff_bytes"] = None if metrics.handoff is None else metrics.handoff.bytes
    return {name: Figure(value) for name, value in values.items() if value is not None}


def _with_intervals(result: _Result) -> dict[str, Figure]:
    found = {name: _figure(each) for name, each in result.intervals.items()}
    return {name: figure for name, figure in found.items() if figure is not None}


def _figure(interval: _Interval | None) -> Figure | None:
    return None if interval is None else Figure(interval.estimate, interval.low, interval.high)


def _skews(skews: Skews) -> dict[str, float | None]:
    return {"requests": skews.requests, "busy": skews.busy}


def _shares(result: _Result, split: int) -> Iterator[Share]:
    for number, each in enumerate(result.replicas):
        pool = "all" if not split else "prefill" if number < split else "decode"
        yield Share(str(number), pool, each.requests, each.busy_ms)
