"""The same requests through several policies, and which one to take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pointsman.comparison.locality_audit import LocalityAudit, audit_single
from pointsman.metrics.distribution import Quantiles, quantiles_of
from pointsman.metrics.reasons import ReasonsOverTime, reasons_over_time
from pointsman.metrics.service import (
    ReplicaLoad,
    ServiceMetrics,
    reason_counts,
    replica_loads,
    service_metrics,
)
from pointsman.policies.policy import Policy, check_each_once
from pointsman.sim.fifo import FifoFleet, simulate
from pointsman.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """What one policy did with the workload."""

    policy: Policy
    metrics: ServiceMetrics
    reasons: dict[str, int]
    replicas: list[ReplicaLoad]
    audit: LocalityAudit | None = None  # of policies that choose locality within a bound
    quantiles: dict[str, Quantiles] = field(default_factory=dict)  # of queue wait and latency
    reasons_over_time: ReasonsOverTime | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """All policies on one workload and fleet, the best first."""

    workload: Workload
    fleet: FifoFleet
    seed: int
    results: tuple[PolicyResult, ...]


def compare_policies(
    workload: Workload,
    policies: Sequence[Policy],
    fleet: FifoFleet,
    seed: int = 0,
    on_policy: Callable[[Policy], None] = lambda _: None,
) -> Comparison:
    """Run every policy on the same requests; sorted by P95 queue wait, then by throughput.

    ``on_policy`` is called before each run. Raises InputError for no policies or for two that are
    the same.
    """
    check_each_once("compare", policies)
    results = []
    for policy in policies:
        on_policy(policy)
        results.append(_result(workload, policy, fleet, seed))
    return Comparison(workload, fleet, seed, tuple(sorted(results, key=_rank)))


def _result(workload: Workload, policy: Policy, fleet: FifoFleet, seed: int) -> PolicyResult:
    routed = simulate(workload, policy, fleet, seed)
    return PolicyResult(
        policy=policy,
        metrics=service_metrics(routed.served, fleet.replicas),
        reasons=reason_counts(routed.reason, policy.reasons),
        replicas=replica_loads(routed.served, fleet.replicas),
        quantiles={
            "queue_wait_ms": quantiles_of(routed.queue_wait_ms),
            "latency_ms": quantiles_of(routed.finish_ms - workload.arrival_ms),
        },
        reasons_over_time=reasons_over_time(workload.arrival_ms, routed.reason, policy.reasons),
        audit=audit_single(routed),
    )


def _rank(result: PolicyResult) -> tuple[float, float]:
    return (result.metrics.p95_queue_wait_ms, -result.metrics.throughput_requests_per_s)
