"""What one simulated run of a shape shows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pointsman.metrics.concurrency import most_at_once
from pointsman.metrics.goodput import Objectives, met
from pointsman.metrics.latency import Answers
from pointsman.metrics.serving import ServingMetrics, serving_metrics
from pointsman.metrics.skew import skew_ratio
from pointsman.plan.hardware import Deployment
from pointsman.sim.batching import FleetRun
from pointsman.sim.outcome import answers_of, gaps_of, loads_of
from pointsman.workload.workload import Floats


@dataclass(frozen=True, slots=True)
class ShapeMetrics:
    """The figures of a run, with the lesson's names for those that its verdict reads.

    ``imbalance_ratio`` is of busy times, where prefill and decode are apart the larger one of the
    two pools; ``comm_cost_ms`` adds up all replicas.
    """

    serving: ServingMetrics
    throughput_req_per_ms: float
    imbalance_ratio: float
    comm_cost_ms: float
    handoff_total_ms: float
    handoff_total_bytes: float
    peak_batch: int  # requests that ran at the same time on one replica
    peak_kv_tokens: int  # of one replica's cache


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """A row a request, the same requests in every run; time NaN where it did not finish."""

    log_e2e: Floats  # natural logarithm of ms
    kept: Floats  # 1.0 where all objectives were met


def measured(
    run: FleetRun, deployment: Deployment, objectives: Objectives
) -> tuple[ShapeMetrics, Columns]:
    """The figures of a run, and its columns."""
    answers = answers_of(run)
    serving = serving_metrics(
        answers, loads_of(run), objectives, deployment.shape.gpus, gaps_of(run)
    )
    metrics = ShapeMetrics(
        serving=serving,
        throughput_req_per_ms=serving.requests_per_s / 1000.0,
        imbalance_ratio=imbalance_ratio(run),
        comm_cost_ms=communication_ms(run, deployment),
        handoff_total_ms=float(np.nansum(run.handoff_ms)),
        handoff_total_bytes=float(run.handoff_bytes.sum()),
        peak_batch=_peak_batch(run),
        peak_kv_tokens=_peak_kv_tokens(run),
    )
    return metrics, _columns(answers, objectives)


def imbalance_ratio(run: FleetRun) -> float:
    """(largest - smallest) / mean busy time of the replicas that do the same work."""
    busy_ms = run.replicas["busy_ms"]
    if run.fleet.split is None:
        return skew_ratio(busy_ms)
    prefill = run.fleet.split.prefill
    return max(skew_ratio(busy_ms[:prefill]), skew_ratio(busy_ms[prefill:]))


def communication_ms(run: FleetRun, deployment: Deployment) -> float:
    """What the iterations, prompt tokens and decodes of all replicas spent on communication."""
    costs, replicas = deployment.communication, run.replicas
    return float(
        costs.per_iteration_ms * replicas["iterations"].sum()
        + costs.per_prefill_token_ms * replicas["prefill_tokens"].sum()
        + costs.per_decode_ms * replicas["decode_tokens"].sum()
    )


def _columns(answers: Answers, objectives: Objectives) -> Columns:
    with np.errstate(divide="ignore"):
        log_e2e = np.log(answers.e2e_ms)
    return Columns(log_e2e, met(answers, objectives).astype(np.float64))


def _peak_batch(run: FleetRun) -> int:
    """The most requests between being scheduled and finishing, over replicas."""
    progress, peak = run.state.progress, 0  # of a split fleet the rows of both sides
    for r in range(run.replicas.shape[0]):
        there = progress[(progress["replica"] == r) & ~np.isnan(progress["finish_ms"])]
        ones = np.ones(there.shape[0], dtype=np.int64)
        peak = max(peak, most_at_once(there["scheduled_ms"], there["finish_ms"], ones))
    return peak


def _peak_kv_tokens(run: FleetRun) -> int:
    used = run.replicas["capacity"] - run.replicas["least_free"]
    return int(used.max()) * run.fleet.engines[0].block_size
