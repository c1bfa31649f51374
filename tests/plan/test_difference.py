"""Intervals on the difference of a candidate and the baseline."""

from __future__ import annotations

import numpy as np
import pytest

from pointsman.plan.difference import Difference, Estimate, difference_of
from pointsman.plan.measure import Columns
from pointsman.verdict.uncertainty import HIGHER, LOWER
from tests.plan import made

RANDOM = np.random.default_rng(11)


def columns(e2e_ms: np.ndarray, kept: np.ndarray | None = None) -> Columns:
    return Columns(np.log(e2e_ms), np.ones(e2e_ms.size) if kept is None else kept)


def test_the_same_against_itself_is_no_difference():
    same = columns(RANDOM.exponential(100.0, 500))
    found = difference_of([same], [same], made.question())
    assert found.e2e_ratio == Estimate(1.0, 1.0, 1.0)
    assert found.goodput == Estimate(0.0, 0.0, 0.0)
    assert found.bearable_error(HIGHER) == found.bearable_error(LOWER) == 0.0


def test_noise_of_two_equal_services_names_no_winner_in_nineteen_of_twenty_runs():
    """At a level of 95 %: of 200 pairs some 10 leave out the ratio 1; beyond 25 once in 30,000."""
    wrong = 0
    for seed in range(200):
        random = np.random.default_rng(seed)
        a, b = (columns(random.exponential(100.0, 400)) for _ in range(2))
        found = difference_of([a], [b], made.question(seed=seed))
        wrong += found.bearable_error(HIGHER) > 0.0 or found.bearable_error(LOWER) > 0.0
    assert wrong <= 25


def test_a_slower_service_is_detected_behind_noise_that_both_share():
    shared = RANDOM.exponential(100.0, 400)
    slower = shared * RANDOM.uniform(1.0, 1.2, 400)
    found = difference_of([columns(slower)], [columns(shared)], made.question())
    # The mean of log(u) for u even in 1..1.2 is 1.2 log(1.2) / 0.2 - 1.
    assert found.e2e_ratio.estimate == pytest.approx(np.exp(6.0 * np.log(1.2) - 1.0), abs=0.01)
    assert found.e2e_ratio.low > 1.0
    assert found.bearable_error(LOWER) > 0.0


def test_replications_are_paired_by_seed():
    """Ratios of 0.5 and 0.5 over two seeds: no spread, whatever the seeds have in common."""
    loads = [np.full(10, 100.0), np.full(10, 900.0)]
    ours = [columns(load / 2.0) for load in loads]
    found = difference_of(ours, [columns(load) for load in loads], made.question())
    assert found.n == 2
    assert (found.e2e_ratio.low, found.e2e_ratio.high) == pytest.approx((0.5, 0.5))


def test_requests_that_did_not_finish_on_both_are_left_out_of_latency_but_not_of_goodput():
    ours = Columns(np.log([50.0, 50.0, 50.0, np.nan]), np.array([1.0, 1.0, 1.0, 0.0]))
    theirs = Columns(np.log([100.0, 100.0, np.nan, np.nan]), np.zeros(4))
    found = difference_of([ours], [theirs], made.question())
    assert found.e2e_ratio.estimate == pytest.approx(0.5)
    assert found.goodput.estimate == 0.75


def test_where_nothing_finished_on_both_there_is_no_ratio():
    nothing = Columns(np.full(4, np.nan), np.zeros(4))
    found = difference_of([columns(np.full(4, 9.0))], [nothing], made.question())
    assert found.e2e_ratio is None
    assert found.bearable_error(HIGHER) == 0.0


def test_the_bearable_error_is_where_opposite_errors_make_both_equal():
    """At most 0.5 of the time: 0.5 (1 + e) = 1 - e at e = 1/3."""
    found = Difference(Estimate(0.4, 0.3, 0.5), Estimate(0.0, 0.0, 0.0), 0.95, 100)
    assert found.bearable_error(HIGHER) == pytest.approx(1.0 / 3.0)
    assert found.bearable_error(LOWER) == 0.0
