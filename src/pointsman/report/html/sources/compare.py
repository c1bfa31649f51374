"""A comparison on replicas that serve one request at a time."""

from __future__ import annotations

from typing import Any

import msgspec

from pointsman.metrics.latency import Spread
from pointsman.metrics.reasons import ReasonsOverTime
from pointsman.metrics.service import ReplicaLoad, ServiceMetrics
from pointsman.report.html.result import (
    SIMULATED,
    AnswerTable,
    Column,
    Figure,
    Latency,
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
    workload_basis,
)

_COLUMNS = (
    Column("policy"),
    Column("wait P50 ms"),
    Column("wait P95 ms"),
    Column("wait P99 ms"),
    Column("latency P50 ms"),
    Column("latency P95 ms"),
    Column("latency P99 ms"),
    Column("hits", percent=True),
    Column("cached tokens", percent=True),
    Column("request skew"),
    Column("busy skew"),
    Column("requests/s"),
)


class _Fleet(msgspec.Struct, frozen=True):
    replicas: int
    model: str
    seed: int


class _Result(msgspec.Struct, frozen=True):
    policy: str
    label: str
    parameters: dict[str, float]
    metrics: ServiceMetrics
    reasons: dict[str, int]
    replicas: tuple[ReplicaLoad, ...]
    locality_audit: AuditFacts | None = None
    quantiles: Quantiles = {}
    reasons_over_time: ReasonsOverTime | None = None


class _Document(msgspec.Struct, frozen=True):
    workload: WorkloadFacts
    fleet: _Fleet
    results: tuple[_Result, ...]
    advice: Advice


def compare_result(document: Any, label: str) -> Result:
    """A ``pointsman.compare/1`` document."""
    facts = decoded(document, _Document, label)
    names = short_names([(each.policy, each.label) for each in facts.results])
    return Result(
        label=label,
        kind="comparison of policies",
        verdict=facts.advice.sentence,
        tables=(AnswerTable("All policies", _COLUMNS, tuple(map(_row, facts.results))),),
        basis=(
            *workload_basis(facts.workload),
            ("Origin", f"simulated: {facts.fleet.replicas:,} replicas, {facts.fleet.model}"),
            ("Seed", str(facts.fleet.seed)),
            ("Interval", "none: figures within 2% count as equal"),
        ),
        runs=tuple(
            _run(each, name, facts.workload, fleet_identity(document))
            for each, name in zip(facts.results, names, strict=True)
        ),
    )


def _row(result: _Result) -> tuple[str | float | None, ...]:
    m = result.metrics
    return (
        result.label,
        *(m.p50_queue_wait_ms, m.p95_queue_wait_ms, m.p99_queue_wait_ms),
        *(m.p50_latency_ms, m.p95_latency_ms, m.p99_latency_ms),
        m.cache_hit_rate,
        m.cached_token_fraction,
        m.load_skew_ratio,
        m.busy_skew_ratio,
        m.throughput_requests_per_s,
    )


def _run(result: _Result, name: str, workload: WorkloadFacts, fleet: str) -> Run:
    m = result.metrics
    cached = m.cached_token_fraction
    return Run(
        name=name,
        origin=SIMULATED,
        policy=result.policy,
        parameters=result.parameters,
        workload=workload.identity,
        fleet=fleet,
        offered_rps=workload.offered_rps,
        latencies=_latencies(result),
        figures={} if cached is None else {"cached_token_fraction": Figure(cached)},
        shares=tuple(
            Share(str(number), "all", load.requests, load.busy_ms)
            for number, load in enumerate(result.replicas)
        ),
        skews={"all": {"requests": m.load_skew_ratio, "busy": m.busy_skew_ratio}},
        reasons=result.reasons,
        reasons_over_time=result.reasons_over_time,
        audit=None if result.locality_audit is None else result.locality_audit.audit,
    )


def _latencies(result: _Result) -> dict[str, Latency]:
    """Of a request that is served alone, latency is E2E."""
    m = result.metrics
    wait = Spread(
        count=m.request_count,
        mean=m.mean_queue_wait_ms,
        p50=m.p50_queue_wait_ms,
        p95=m.p95_queue_wait_ms,
        p99=m.p99_queue_wait_ms,
        worst=m.max_queue_wait_ms,
    )
    whole = Spread(
        count=m.request_count,
        mean=m.mean_latency_ms,
        p50=m.p50_latency_ms,
        p95=m.p95_latency_ms,
        p99=m.p99_latency_ms,
        worst=m.max_latency_ms,
    )
    return {
        "queue_wait_ms": latency(wait, result.quantiles, "queue_wait_ms"),
        "e2e_ms": latency(whole, result.quantiles, "latency_ms"),
    }
