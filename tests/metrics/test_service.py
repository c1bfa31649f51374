"""Figures of a service, worked out by hand."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pytest

from pointsman.metrics.service import (
    Served,
    ServiceMetrics,
    reason_counts,
    replica_loads,
    service_metrics,
)
from pointsman.metrics.skew import skew_ratio

# Three requests: replica 0 serves 0-4 and (waiting 1) 4-6, replica 1 serves 5-10.
THREE = Served(
    replica=np.array([0, 0, 1]),
    arrival_ms=np.array([0.0, 3.0, 5.0]),
    queue_wait_ms=np.array([0.0, 1.0, 0.0]),
    finish_ms=np.array([4.0, 6.0, 10.0]),
    busy_ms=np.array([4.0, 2.0, 5.0]),
    hit=np.array([False, True, False]),
    tokens=np.array([10, 20, 5]),
    prompt_tokens=np.array([8, 16, 4]),
    cached_tokens=np.array([0, 7, 0]),
)


def test_the_figures_of_three_requests():
    figures = service_metrics(THREE, 2)
    assert figures.request_count == 3
    assert figures.mean_queue_wait_ms == 1.0 / 3.0
    assert (figures.p50_queue_wait_ms, figures.p95_queue_wait_ms) == (0.0, 1.0)
    assert (figures.p50_latency_ms, figures.max_latency_ms) == (4.0, 5.0)
    assert figures.throughput_requests_per_s == 300.0
    assert figures.cache_hit_rate == 1 / 3
    assert figures.cached_token_fraction == 7 / 28
    assert figures.load_skew_ratio == (2 - 1) / 1.5
    assert figures.busy_skew_ratio == (6.0 - 5.0) / 5.5
    assert figures.utilisation == 11.0 / 20.0


def test_the_window_ends_at_the_last_finish():
    """From the first arrival, 0, to the last finish, 10: whatever happens later."""
    figures = service_metrics(THREE, 2)
    assert figures.throughput_requests_per_s == 3 / 0.010


def test_what_each_replica_did():
    loads = [astuple(load) for load in replica_loads(THREE, 3)]
    assert loads == [(2, 6.0, 30), (1, 5.0, 5), (0, 0.0, 0)]


def test_no_requests_have_figures_of_zero():
    empty = Served(*(np.array([]) for _ in range(6)))
    assert service_metrics(empty, 4) == ServiceMetrics()


@pytest.mark.parametrize(("loads", "skew"), [([3, 3], 0.0), ([4, 0], 2.0), ([0, 0], 0.0)])
def test_skew_is_the_spread_over_the_mean(loads, skew):
    assert skew_ratio(np.array(loads)) == skew


def test_reasons_that_never_decided_are_counted_as_zero():
    assert reason_counts(np.array([1, 1], dtype=np.int8), ("a", "b", "c")) == {
        "a": 0,
        "b": 2,
        "c": 0,
    }
