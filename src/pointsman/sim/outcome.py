"""A simulated run as the columns that metrics are computed from."""

from __future__ import annotations

import numpy as np

from pointsman.metrics import latency
from pointsman.metrics.intertoken import GapHistogram
from pointsman.metrics.latency import Answers
from pointsman.metrics.replicas import ReplicaLoads
from pointsman.sim.batching import FleetRun
from pointsman.sim.batching_state import FAILED, FINISHED, REJECTED

_STATUS = {FINISHED: latency.FINISHED, FAILED: latency.FAILED, REJECTED: latency.REJECTED}


def answers_of(run: FleetRun) -> Answers:
    """A row a request. Of a split fleet the replica is the one that computed the prompt."""
    status = np.full(len(run.workload), -1, dtype=np.int8)
    for ours, theirs in _STATUS.items():
        status[run.status == ours] = theirs
    is_split = run.fleet.split is not None
    tokens = run.workload.output_tokens
    return Answers(
        replica=run.replica,
        status=status,
        arrival_ms=run.arrival_ms,
        scheduled_ms=np.ascontiguousarray(run.prefills["scheduled_ms"]),
        first_token_ms=run.first_token_ms,
        finish_ms=run.finish_ms,
        prompt_tokens=run.workload.prompt_tokens,
        output_tokens=np.where(run.finished, tokens, 0).astype(np.int32),
        cached_tokens=run.cached_tokens,
        recomputed_tokens=run.recomputed_tokens,
        preemptions=run.preemptions,
        handoff_ms=run.handoff_ms if is_split else None,
        handoff_bytes=run.handoff_bytes if is_split else None,
        prefilled_ms=np.array(run.prefills["finish_ms"]) if is_split else None,
        seat_wait_ms=run.seat_wait_ms if is_split else None,
    )


def loads_of(run: FleetRun) -> ReplicaLoads:
    """A row a replica; the mean use of the cache is over the time from first arrival to last
    finish, in which an idle replica uses none."""
    replicas = run.replicas
    window_ms = 0.0
    if run.finished.any():
        window_ms = float(np.nanmax(run.finish_ms) - run.arrival_ms.min())
    capacity = replicas["capacity"].astype(np.float64)
    mean = replicas["kv_block_ms"] / (capacity * window_ms) if window_ms else 0.0 * capacity
    return ReplicaLoads(
        busy_ms=np.ascontiguousarray(replicas["busy_ms"]),
        kv_used_mean_fraction=np.minimum(1.0, mean),
        kv_used_peak_fraction=1.0 - replicas["least_free"] / capacity,
        iterations=np.ascontiguousarray(replicas["iterations"]),
        evictions=np.ascontiguousarray(replicas["evictions"]),
    )


def gaps_of(run: FleetRun) -> GapHistogram:
    """The gaps between the tokens of all answers."""
    counts = run.state.gaps.sum(axis=0)
    return GapHistogram(counts, float(run.replicas["gap_total_ms"].sum()))
