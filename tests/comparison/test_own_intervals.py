"""Where the figures of one run lie by themselves."""

from __future__ import annotations

import numpy as np

from pointsman.comparison.differences import Outcome
from pointsman.comparison.own_intervals import own_intervals

FIGURES = ["goodput_fraction", "p99_ttft_ms", "p99_e2e_ms"]


def test_the_estimate_is_the_runs_own_figure_and_lies_between_the_bounds():
    met = np.array([1.0, 1.0, 1.0, 0.0] * 50)
    times = np.tile(np.arange(1.0, 101.0), 2)
    found = own_intervals(Outcome(met, times, 2.0 * times), seed=1)
    assert [found[name].estimate for name in FIGURES] == [0.75, 99.0, 198.0]
    assert all(found[name].low <= found[name].estimate <= found[name].high for name in FIGURES)


def test_values_that_are_all_alike_have_an_interval_without_width():
    found = own_intervals(Outcome(None, np.full(40, 5.0), np.full(40, 9.0)), seed=1)
    assert list(found) == FIGURES[1:]
    assert (found["p99_ttft_ms"].low, found["p99_ttft_ms"].high) == (5.0, 5.0)


def test_too_few_finished_requests_have_none():
    times = np.array([1.0, 2.0, 3.0, np.nan, np.nan])
    assert own_intervals(Outcome(None, times, times), seed=1)["p99_ttft_ms"] is None
