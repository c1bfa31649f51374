"""One workload on one configuration: the ledger of its stages, and what a burst of it needs.

The summary is the lesson's: all requests at once, in their order, spread by the policy. The
service metrics beside it use the arrival times of the trace.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pointsman.costs.stages import stages_of
from pointsman.metrics.service import (
    ReplicaLoad,
    ServiceMetrics,
    reason_counts,
    replica_loads,
    service_metrics,
)
from pointsman.metrics.skew import skew_ratio
from pointsman.policies.policy import Policy
from pointsman.sim.fifo import FifoFleet, Routed, simulate
from pointsman.workload.workload import Floats, Workload


@dataclass(frozen=True, slots=True)
class StageTotals:
    """The stages of all requests, nothing cached; ``service_ms`` of rows that bring their own."""

    prefill_ms: float
    decode_ms: float
    comm_ms: float
    pipeline_ms: float
    handoff_ms: float
    handoff_bytes: float
    service_ms: float


@dataclass(frozen=True, slots=True)
class BurstSummary:
    """All requests at once on the fleet; unrounded, with the lesson's names.

    ``single_replica_time_ms`` is what one replica of the fleet needs for them by itself, with the
    same policy and caches, so that a fleet of one is exactly as fast as its own baseline.
    """

    single_replica_time_ms: float
    makespan_ms: float
    throughput_req_per_ms: float
    imbalance_ratio: float
    comm_cost_ms: float
    handoff_total_ms: float
    handoff_total_bytes: float
    queue_wait_total_ms: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """The ledger, the burst and the service of one configuration."""

    workload: Workload
    policy: Policy
    fleet: FifoFleet
    seed: int
    ledger: StageTotals
    summary: BurstSummary
    service: ServiceMetrics
    reasons: dict[str, int]
    replicas: list[ReplicaLoad]


def estimate(workload: Workload, policy: Policy, fleet: FifoFleet, seed: int = 0) -> Estimate:
    """Price the workload, run it as a burst and as it arrived."""
    routed = simulate(workload, policy, fleet, seed)
    return Estimate(
        workload=workload,
        policy=policy,
        fleet=fleet,
        seed=seed,
        ledger=stage_totals(workload, fleet),
        summary=_burst(workload, policy, fleet, seed),
        service=service_metrics(routed.served, fleet.replicas),
        reasons=reason_counts(routed.reason, policy.reasons),
        replicas=replica_loads(routed.served, fleet.replicas),
    )


def stage_totals(workload: Workload, fleet: FifoFleet) -> StageTotals:
    """Add up the stages of every request; rows with their own service time stand apart."""
    given = ~np.isnan(workload.service_ms)
    priced = ~given
    stages = stages_of(
        workload.prompt_tokens[priced].astype(np.float64),
        workload.output_tokens[priced].astype(np.float64),
        fleet.costs,
    )
    rows = int(priced.sum())
    return StageTotals(
        prefill_ms=float(np.sum(stages.prefill_ms)),
        decode_ms=float(np.sum(stages.decode_ms)),
        comm_ms=float(np.sum(stages.comm_ms)),
        pipeline_ms=float(stages.pipeline_ms) * rows,
        handoff_ms=float(np.sum(np.broadcast_to(stages.handoff_ms, rows))),
        handoff_bytes=float(np.sum(stages.handoff_bytes)),
        service_ms=float(workload.service_ms[given].sum()),
    )


def _burst(workload: Workload, policy: Policy, fleet: FifoFleet, seed: int) -> BurstSummary:
    at_once = replace(workload, arrival_ms=np.zeros(len(workload)))
    routed = simulate(at_once, policy, fleet, seed)
    alone = simulate(at_once, policy, replace(fleet, replicas=1), seed)
    stages = stage_totals(workload, fleet)
    load_ms = _load_ms(routed)
    makespan_ms = float(load_ms.max())
    return BurstSummary(
        single_replica_time_ms=float(_load_ms(alone).max()),
        makespan_ms=makespan_ms,
        throughput_req_per_ms=len(workload) / makespan_ms if makespan_ms else 0.0,
        imbalance_ratio=skew_ratio(load_ms),
        comm_cost_ms=stages.comm_ms,
        handoff_total_ms=stages.handoff_ms,
        handoff_total_bytes=stages.handoff_bytes,
        queue_wait_total_ms=float(routed.queue_wait_ms.sum()),
    )


def _load_ms(routed: Routed) -> Floats:
    """The work of each replica, added up in the order in which it came."""
    loads = [load.busy_ms for load in replica_loads(routed.served, routed.fleet.replicas)]
    return np.array(loads, dtype=np.float64)
