"""Intervals over repeats: by hand, and as often right as they say."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pointsman.core.percentiles import nearest_rank
from pointsman.verdict.sections import Sections, section_difference, section_interval
from tests.verdict.binomial import within

T2 = 4.302653  # Student's t, two degrees of freedom, 95 %, from tables; T1 of one degree
T1 = 12.706205


@pytest.mark.parametrize(
    ("figure", "half"),
    [
        (Sections(10.0, (9.0, 10.0, 11.0)), T2 * math.sqrt(1.0 / 3.0)),
        # The whole need not be the repeats' mean: (2^2 + 2^2 + 2^2) / 2 = 6.
        (Sections(10.0, (12.0, 12.0, 12.0)), T2 * math.sqrt(6.0 / 3.0)),
        (Sections(5.0, (5.0, 5.0)), 0.0),
    ],
)
def test_an_interval_is_students_t_on_the_repeats_distances_from_the_whole(figure, half):
    interval = section_interval(figure)
    assert interval.high - interval.estimate == pytest.approx(half, rel=1e-6)
    assert interval.estimate - interval.low == pytest.approx(half, rel=1e-6)


def test_one_repeat_says_nothing_of_noise():
    interval = section_interval(Sections(10.0, (10.0,)))
    assert (interval.low, interval.high) == (-math.inf, math.inf)


def test_as_many_repeats_of_both_are_paired():
    a, b = Sections(12.0, (10.0, 12.0, 14.0)), Sections(10.0, (9.0, 10.0, 11.0))
    interval = section_difference(a, b)  # 1, 2, 3 around 2
    assert interval.high - 2.0 == pytest.approx(T2 * math.sqrt(1.0 / 3.0), rel=1e-6)


def test_unlike_numbers_of_repeats_have_the_freedom_of_the_fewer():
    a, b = Sections(10.0, (9.0, 10.0, 11.0)), Sections(5.0, (4.0, 6.0))
    interval = section_difference(a, b)  # 1 / 3 + 2 / 2
    assert interval.high - 5.0 == pytest.approx(T1 * math.sqrt(1.0 / 3.0 + 1.0), rel=1e-6)


def test_the_true_p99_lies_in_the_interval_of_three_runs_as_often_as_it_says():
    random, trials = np.random.default_rng(11), 500
    hits = 0
    for _ in range(trials):
        runs = np.sort(random.exponential(size=(3, 1000)))
        whole = nearest_rank(np.sort(runs.ravel()), 0.99)
        figure = Sections(whole, tuple(nearest_rank(run, 0.99) for run in runs))
        interval = section_interval(figure)
        hits += interval.low <= math.log(100.0) <= interval.high
    assert within(trials - hits, trials, 0.05)
