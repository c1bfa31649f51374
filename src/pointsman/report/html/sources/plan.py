"""A plan: shapes on given GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from pointsman.report.html.result import (
    SIMULATED,
    AnswerTable,
    AtLoad,
    Column,
    Difference,
    Figure,
    HeldRate,
    Result,
    Run,
    Share,
)
from pointsman.report.html.sources.decoding import (
    Advice,
    WorkloadFacts,
    decoded,
    latency,
    stated,
    workload_basis,
)
from pointsman.report.html.sources.fleet import ServingFacts, figures_of, spreads_of, stages_of

_COLUMNS = (
    Column("rank"),
    Column("shape"),
    Column("decision"),
    Column("policy"),
    Column("GPUs"),
    Column("goodput", percent=True),
    Column("TTFT P95 ms"),
    Column("TPOT P95 ms"),
    Column("E2E P95 ms"),
    Column("most requests/s"),
    Column("most tokens/s/GPU"),
)
_REASONS = (Column("shape"), Column("decision"), Column("reason"), Column("next"))
_AT_MAX = {
    "output_tokens_per_s_per_gpu": "output_tokens_per_s_per_gpu_at_max",
    "p95_ttft_ms": "p95_ttft_ms_at_max",
    "p95_tpot_ms": "p95_tpot_ms_at_max",
    "p95_e2e_ms": "p95_e2e_ms_at_max",
}


class _Metrics(ServingFacts, frozen=True, kw_only=True):
    replica_requests: tuple[int, ...]


class _MaxRate(msgspec.Struct, frozen=True):
    times_offered: float | None
    fails_at_times_offered: float | None
    max_requests_per_s: float | None
    output_tokens_per_s_per_gpu_at_max: float | None
    p95_ttft_ms_at_max: float | None
    p95_tpot_ms_at_max: float | None
    p95_e2e_ms_at_max: float | None


class _Bounds(msgspec.Struct, frozen=True):
    estimate: float | None
    low: float | None
    high: float | None
    verdict: str | None = None


class _Interval(_Bounds, frozen=True, kw_only=True):
    goodput_difference: _Bounds


class _Shape(msgspec.Struct, frozen=True):
    kind: str
    shape: str
    prefill_replicas: int
    gpus: int
    policy: str
    rank: int
    metrics: _Metrics
    max_rate: _MaxRate
    interval: _Interval | None
    decision: str | None
    reason: str | None
    next_action: str | None = None


class _Hardware(msgspec.Struct, frozen=True):
    model: str
    device: str
    gpus: int
    costs: str


class _Question(msgspec.Struct, frozen=True):
    objectives: dict[str, float | None]
    attainment: float
    offered_rps: float
    model_error_fraction: float
    level: float
    replications: int
    replications_of: str
    seed: int


class _Document(msgspec.Struct, frozen=True):
    workload: WorkloadFacts
    hardware: _Hardware
    question: _Question
    baseline: _Shape
    shapes: tuple[_Shape, ...]
    warnings: tuple[str, ...]
    advice: Advice


def plan_result(document: Any, label: str) -> Result:
    """A ``pointsman.plan/1`` document."""
    facts = decoded(document, _Document, label)
    shapes = sorted((facts.baseline, *facts.shapes), key=lambda shape: shape.rank)
    first = next((each for each in shapes if each.reason), None)
    notes = () if first is None else (f"{first.shape}, {_decision(first)}: {first.reason}.",)
    table = AnswerTable("All shapes, the best first", _COLUMNS, tuple(map(_row, shapes)), notes)
    return Result(
        label=label,
        kind="plan",
        verdict=facts.advice.sentence,
        tables=(table, _reasons(shapes)),
        basis=_basis(facts),
        warnings=facts.warnings,
        runs=tuple(_run(shape, facts) for shape in shapes),
    )


def _row(shape: _Shape) -> tuple[str | float | None, ...]:
    m, rate = shape.metrics, shape.max_rate
    return (
        shape.rank,
        shape.shape,
        _decision(shape),
        shape.policy,
        shape.gpus,
        None if m.goodput is None else m.goodput.fraction,
        *(m.ttft_ms.p95, m.tpot_ms.p95, m.e2e_ms.p95),
        rate.max_requests_per_s,
        rate.output_tokens_per_s_per_gpu_at_max,
    )


def _decision(shape: _Shape) -> str:
    return shape.decision or "baseline"


def _reasons(shapes: Sequence[_Shape]) -> AnswerTable:
    """Of the first as well as of the others: words are too long for a column among figures."""
    rows = tuple(
        (each.shape, _decision(each), each.reason, each.next_action)
        for each in shapes
        if each.reason
    )
    return AnswerTable("Why each shape is what it is", _REASONS, rows, is_folded=True)


def _basis(facts: _Document) -> tuple[tuple[str, str], ...]:
    question, hardware = facts.question, facts.hardware
    limits = question.objectives.items()
    named = [f"{name.removesuffix('_ms').upper()} {v:g} ms" for name, v in limits if v]
    quoted = hardware.costs == "roofline"
    costs = "costs quoted: a roofline of data sheets" if quoted else "costs fitted to an engine"
    return (
        *workload_basis(facts.workload),
        ("Hardware", f"{hardware.gpus} x {hardware.device}, {hardware.model}"),
        ("Objectives", f"{', '.join(named)}, in {stated(question.attainment)} of the requests"),
        ("Offered", f"{question.offered_rps:.4g} requests/s"),
        (
            "Origin",
            f"simulated; {costs}, taken to be off by {stated(question.model_error_fraction)}",
        ),
        (
            "Interval",
            f"{stated(question.level)}, of {question.replications:,} replications:"
            f" {question.replications_of}",
        ),
        ("Seed", str(question.seed)),
    )


def _run(shape: _Shape, facts: _Document) -> Run:
    rate = shape.max_rate
    return Run(
        name=shape.shape,
        origin=SIMULATED,
        policy=shape.policy,
        group=shape.kind,
        latencies={
            name: latency(spread, {}, name) for name, spread in spreads_of(shape.metrics).items()
        },
        figures=figures_of(shape.metrics),
        stages=stages_of(shape.metrics),
        shares=_shares(shape),
        differences=_differences(shape, facts.baseline.shape),
        workload=facts.workload.identity,
        held=HeldRate(rate.times_offered or 0.0, rate.fails_at_times_offered),
        at_held=_at_held(rate),
    )


def _shares(shape: _Shape) -> tuple[Share, ...]:
    split = shape.prefill_replicas
    return tuple(
        Share(str(k), "all" if not split else "prefill", count)
        for k, count in enumerate(shape.metrics.replica_requests)
        if not split or k < split
    )


def _at_held(rate: _MaxRate) -> AtLoad | None:
    if rate.times_offered is None:
        return None
    values = {name: getattr(rate, of) for name, of in _AT_MAX.items()}
    known = {name: Figure(value) for name, value in values.items() if value is not None}
    return AtLoad(rate.times_offered, known)


def _differences(shape: _Shape, against: str) -> tuple[Difference, ...]:
    if shape.interval is None:
        return ()
    bounds: dict[str, _Bounds] = {
        "e2e_ratio": shape.interval,
        "goodput_fraction": shape.interval.goodput_difference,
    }
    return tuple(
        Difference(name, Figure(each.estimate, each.low, each.high), each.verdict or "-", against)
        for name, each in bounds.items()
        if each.estimate is not None
    )
