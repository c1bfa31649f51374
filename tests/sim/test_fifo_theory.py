"""The timeline against closed-form queueing and against an independent second simulation.

Every interval is stated: with the seeds fixed a run is deterministic, and the half-width is the
statistical error of the mean of that many correlated waits, found by batch means.
"""

from __future__ import annotations

import heapq

import numpy as np
import pytest

from pointsman import POLICIES, FifoFleet, simulate, workload_of_columns

REQUESTS = 400_000
MEAN_SERVICE_MS = 10.0
STANDARD_ERRORS = 4.0  # beyond it by chance once in 15,000 runs


def mean_wait(load: float, service_ms: np.ndarray, replicas: int = 1) -> tuple[float, float]:
    """The mean wait and its standard error by 40 batch means."""
    rng = np.random.default_rng(19)
    gaps = rng.exponential(MEAN_SERVICE_MS / load / replicas, service_ms.size)
    workload = workload_of_columns(np.cumsum(gaps), service_ms=service_ms)
    routed = simulate(workload, POLICIES["queue_aware"], FifoFleet(replicas))
    batches = routed.queue_wait_ms.reshape(40, -1).mean(axis=1)
    return float(batches.mean()), float(batches.std(ddof=1) / np.sqrt(40))


@pytest.mark.parametrize("load", [0.3, 0.5, 0.7, 0.8, 0.9, 0.95])
def test_one_replica_with_exponential_service_waits_as_m_m_1(load):
    service_ms = np.random.default_rng(23).exponential(MEAN_SERVICE_MS, REQUESTS)
    wait_ms, error_ms = mean_wait(load, service_ms)
    theory_ms = load / (1 - load) * MEAN_SERVICE_MS
    assert wait_ms == pytest.approx(theory_ms, abs=STANDARD_ERRORS * error_ms)
    assert error_ms < 0.1 * theory_ms  # the interval says something


@pytest.mark.parametrize("load", [0.3, 0.5, 0.7, 0.8, 0.9, 0.95])
def test_one_replica_with_constant_service_waits_as_m_d_1(load):
    wait_ms, error_ms = mean_wait(load, np.full(REQUESTS, MEAN_SERVICE_MS))
    theory_ms = load / (2 * (1 - load)) * MEAN_SERVICE_MS  # Pollaczek-Khinchine
    assert wait_ms == pytest.approx(theory_ms, abs=STANDARD_ERRORS * error_ms)
    assert error_ms < 0.1 * theory_ms


@pytest.mark.parametrize(("load", "replicas"), [(0.5, 4), (0.8, 4), (0.9, 16)])
def test_the_shortest_wait_over_k_replicas_waits_as_m_m_k(load, replicas):
    """Knowing every service time, the shortest wait is one queue before k servers: Erlang C."""
    service_ms = np.random.default_rng(29).exponential(MEAN_SERVICE_MS, REQUESTS)
    wait_ms, error_ms = mean_wait(load, service_ms, replicas)
    assert wait_ms == pytest.approx(erlang_c_wait_ms(load, replicas), abs=4 * error_ms)


def erlang_c_wait_ms(load: float, servers: int) -> float:
    offered = load * servers
    blocking = 1.0
    for k in range(1, servers + 1):  # Erlang B by recursion
        blocking = offered * blocking / (k + offered * blocking)
    waiting = blocking / (1 - load * (1 - blocking))
    return waiting * MEAN_SERVICE_MS / (servers * (1 - load))


def test_join_the_shortest_queue_equals_a_plain_heap_loop():
    """Fewest requests in flight; equals in turn; a request that finishes now has left."""
    rng = np.random.default_rng(31)
    n, replicas = 3000, 5
    arrival_ms = np.cumsum(rng.exponential(2.2, n))
    service_ms = rng.exponential(10.0, n)
    in_flight, free_ms = [0] * replicas, [0.0] * replicas
    finishes: list[tuple[float, int]] = []
    expected = []
    for i in range(n):
        while finishes and finishes[0][0] <= arrival_ms[i]:
            in_flight[heapq.heappop(finishes)[1]] -= 1
        order = [(i + step) % replicas for step in range(replicas)]
        k = min(order, key=lambda candidate: in_flight[candidate])
        free_ms[k] = max(free_ms[k], arrival_ms[i]) + service_ms[i]
        heapq.heappush(finishes, (free_ms[k], k))
        in_flight[k] += 1
        expected.append(k)
    workload = workload_of_columns(arrival_ms, service_ms=service_ms)
    routed = simulate(workload, POLICIES["least_requests"], FifoFleet(replicas))
    assert routed.replica.tolist() == expected
