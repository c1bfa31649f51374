"""What a service did for its requests, and what each replica had to do.

Every figure is computed here, from result columns, and nowhere else. Percentiles are by nearest
rank, sums left to right, so that a figure is the same on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pointsman.core.percentiles import left_to_right_sum, nearest_rank
from pointsman.metrics.rates import per_second, prompt_fraction, window_ms
from pointsman.metrics.skew import skew_ratio

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """The columns that metrics need, a row a request."""

    replica: NDArray[Any]
    arrival_ms: Floats
    queue_wait_ms: Floats
    finish_ms: Floats
    busy_ms: Floats  # time the replica spent on it
    hit: NDArray[np.bool_]  # some of its prompt was cached
    tokens: NDArray[Any] | None = None  # prompt and output; None where unknown
    prompt_tokens: NDArray[Any] | None = None  # None where unknown
    cached_tokens: NDArray[Any] | None = None  # of the prompt


@dataclass(frozen=True, slots=True)
class ServiceMetrics:
    """Figures over all requests; all zero where there are none.

    ``latency`` is from arrival to finish, ``queue_wait`` from arrival to start, both in ms.
    ``throughput_requests_per_s`` counts from the first arrival to the last finish; 0 when that
    window has no length. ``load_skew_ratio`` is by requests, ``busy_skew_ratio`` by busy time.
    ``cache_hit_rate`` counts requests with any cached token, ``cached_token_fraction`` the share
    of all prompt tokens that were cached (None where prompts are unknown). ``utilisation`` is busy
    time over replicas times window.
    """

    request_count: int = 0
    mean_queue_wait_ms: float = 0.0
    p50_queue_wait_ms: float = 0.0
    p95_queue_wait_ms: float = 0.0
    p99_queue_wait_ms: float = 0.0
    max_queue_wait_ms: float = 0.0
    mean_latency_ms: float = 0.0
    p50_latency_ms: float = 0.0
    p95_latency_ms: float = 0.0
    p99_latency_ms: float = 0.0
    max_latency_ms: float = 0.0
    throughput_requests_per_s: float = 0.0
    cache_hit_rate: float = 0.0
    cached_token_fraction: float | None = None
    load_skew_ratio: float = 0.0
    busy_skew_ratio: float = 0.0
    utilisation: float = 0.0


@dataclass(frozen=True, slots=True)
class ReplicaLoad:
    """What one replica did; ``tokens`` is None where the workload does not say."""

    requests: int
    busy_ms: float
    tokens: int | None


def replica_loads(served: Served, replicas: int) -> list[ReplicaLoad]:
    """Requests, busy time and tokens of each replica."""
    requests = np.bincount(served.replica, minlength=replicas).tolist()
    busy_ms = _busy_ms(served, replicas).tolist()
    tokens: list[int | None] = [None] * replicas
    if served.tokens is not None:
        by_replica = np.bincount(served.replica, weights=served.tokens, minlength=replicas)
        tokens = by_replica.astype(np.int64).tolist()
    return [ReplicaLoad(*row) for row in zip(requests, busy_ms, tokens, strict=True)]


def service_metrics(served: Served, replicas: int) -> ServiceMetrics:
    """The figures of a service of that many replicas."""
    count = served.arrival_ms.shape[0]
    if count == 0:
        return ServiceMetrics()
    waits = np.sort(served.queue_wait_ms)
    latencies = np.sort(served.finish_ms - served.arrival_ms)
    makespan_ms = window_ms(served.arrival_ms, served.finish_ms)
    requests = np.bincount(served.replica, minlength=replicas)
    busy_ms = _busy_ms(served, replicas)
    return ServiceMetrics(
        request_count=count,
        mean_queue_wait_ms=left_to_right_sum(waits) / count,
        p50_queue_wait_ms=nearest_rank(waits, 0.50),
        p95_queue_wait_ms=nearest_rank(waits, 0.95),
        p99_queue_wait_ms=nearest_rank(waits, 0.99),
        max_queue_wait_ms=float(waits[-1]),
        mean_latency_ms=left_to_right_sum(latencies) / count,
        p50_latency_ms=nearest_rank(latencies, 0.50),
        p95_latency_ms=nearest_rank(latencies, 0.95),
        p99_latency_ms=nearest_rank(latencies, 0.99),
        max_latency_ms=float(latencies[-1]),
        throughput_requests_per_s=per_second(count, makespan_ms),
        cache_hit_rate=int(np.count_nonzero(served.hit)) / count,
        cached_token_fraction=_cached_fraction(served),
        load_skew_ratio=skew_ratio(requests, mean=count / replicas),
        busy_skew_ratio=skew_ratio(busy_ms),
        utilisation=float(busy_ms.sum() / (replicas * makespan_ms)) if makespan_ms else 0.0,
    )


def reason_counts(reason: NDArray[np.int8], names: tuple[str, ...]) -> dict[str, int]:
    """How often each reason decided, in the policy's order; reasons that never did included."""
    counts = np.bincount(reason, minlength=len(names)).tolist()
    return dict(zip(names, counts, strict=True))


def _cached_fraction(served: Served) -> float | None:
    if served.prompt_tokens is None or served.cached_tokens is None:
        return None
    return prompt_fraction(served.cached_tokens, served.prompt_tokens)


def _busy_ms(served: Served, replicas: int) -> Floats:
    busy_ms = np.bincount(served.replica, weights=served.busy_ms, minlength=replicas)
    return busy_ms.astype(np.float64, copy=False)
