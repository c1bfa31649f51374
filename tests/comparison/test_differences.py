"""Differences between runs of the same requests."""

from __future__ import annotations

import numpy as np
import pytest

from pointsman.comparison.differences import (
    BETTER,
    NOT_TOLD,
    WORSE,
    Difference,
    Outcome,
    differences,
)
from pointsman.verdict.block_length import block_requests
from pointsman.verdict.bootstrap import Resampling, block_bootstrap, mean_of
from pointsman.verdict.uncertainty import HIGHER, LOWER, Interval


def outcome(seed: int, shift_ms: float = 0.0, requests: int = 300) -> Outcome:
    rng = np.random.default_rng(seed)
    ttft_ms = rng.integers(10, 1000, requests).astype(float)
    return Outcome((ttft_ms < 500.0).astype(float), ttft_ms + shift_ms, ttft_ms * 2.0 + shift_ms)


def test_a_constant_shift_is_found_exactly():
    ((ttft_goodput, p95, mean, e2e),) = differences([outcome(1, shift_ms=8.0)], outcome(1), seed=0)
    assert ttft_goodput.interval.estimate == 0.0
    for each in (p95, mean, e2e):
        assert (each.interval.low, each.interval.high) == pytest.approx((8.0, 8.0))
        assert each.verdict == WORSE


def test_all_pairs_and_figures_have_the_blocks_of_the_longest():
    """The second run drifts away slowly, so its differences stay alike for long."""
    base, quick = outcome(1), outcome(2)
    slow = Outcome(base.met, base.ttft_ms + np.linspace(0.0, 900.0, 300), base.e2e_ms)
    longest = block_requests(slow.ttft_ms - base.ttft_ms)
    assert longest > block_requests(quick.ttft_ms - base.ttft_ms)
    by_hand = block_bootstrap(
        quick.ttft_ms, base.ttft_ms, mean_of, 5, Resampling(block_requests=longest)
    )
    rows = differences([quick, slow], base, seed=5)
    (found,) = (each for each in rows[0] if each.figure == "mean_ttft_ms")
    assert found.interval == by_hand


def test_without_objectives_there_is_no_goodput_to_differ_in():
    bare = [Outcome(None, each.ttft_ms, each.e2e_ms) for each in (outcome(1), outcome(2))]
    ((*figures,),) = differences(bare[:1], bare[1], seed=0)
    assert [each.figure for each in figures] == ["p95_ttft_ms", "mean_ttft_ms", "mean_e2e_ms"]


def test_a_figure_that_hardly_anybody_has_gets_no_interval():
    base = outcome(1)
    lost = np.full(300, np.nan)
    lost[0] = 5.0
    row = differences([Outcome(base.met, lost, lost)], base, seed=0)[0]
    assert [each.interval is None for each in row] == [False, True, True, True]
    assert row[1].verdict == NOT_TOLD


@pytest.mark.parametrize(
    ("low", "high", "better", "verdict"),
    [
        (1.0, 2.0, HIGHER, BETTER),
        (1.0, 2.0, LOWER, WORSE),
        (-2.0, -1.0, LOWER, BETTER),
        (-2.0, -1.0, HIGHER, WORSE),
        (-1.0, 1.0, HIGHER, NOT_TOLD),
        (0.0, 1.0, HIGHER, NOT_TOLD),
    ],
)
def test_the_verdict_is_what_the_interval_leaves_standing(low, high, better, verdict):
    interval = Interval((low + high) / 2, low, high, level=0.95, n=10, magnitude=20.0)
    difference = Difference("figure", better, interval)
    assert difference.verdict == verdict
    # The bound next to 0 over |A| + |B|: 1 of 20.
    assert difference.bearable_error_fraction == (0.0 if verdict == NOT_TOLD else 0.05)
