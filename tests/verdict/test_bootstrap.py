"""Intervals on differences within one trace."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pointsman import InputError
from pointsman.core.percentiles import nearest_rank
from pointsman.verdict.bootstrap import (
    Resampling,
    block_bootstrap,
    mean_of,
    own_bootstrap,
    percentile_of,
)
from pointsman.verdict.uncertainty import HIGHER
from tests.verdict.binomial import within

FEW = Resampling(resamples=199)
SEEDS = 300
SMEAR = np.ones(10)  # each value shares nine tenths with the next


def waits_of(gaps_ms: np.ndarray, service_ms: np.ndarray) -> np.ndarray:
    """Waits in one queue, first come first served: Lindley's recursion."""
    waits = [0.0]
    for gap, service in zip(gaps_ms[1:], service_ms[:-1], strict=True):
        waits.append(max(0.0, waits[-1] + service - gap))
    return np.array(waits)


def test_two_blocks_of_two_by_hand():
    """Differences 0 0 0 12 in blocks of two: the sums 0, 0, 12 are drawn twice, so the mean is 0,
    3 or 6 with chances 4/9, 4/9, 1/9. At 70 % the ends are 0 and 3; two blocks widen that by
    t of one degree, tan(0.35 pi), over the normal 1.03643, and by sqrt(2 / 1)."""
    interval = block_bootstrap(
        [0, 0, 0, 12], [0, 0, 0, 0], mean_of, 1, Resampling(2_000, block_requests=2, level=0.7)
    )
    half = 1.5 * math.tan(0.35 * math.pi) / 1.0364334 * math.sqrt(2.0)
    assert (interval.low, interval.high) == pytest.approx((1.5 - half, 1.5 + half), rel=1e-6)
    assert (interval.estimate, interval.n, interval.magnitude) == (3.0, 4, 3.0)


def test_both_sides_get_the_same_blocks():
    values = np.random.default_rng(1).exponential(size=100)
    interval = block_bootstrap(values + 5.0, values, mean_of, 2, FEW)
    assert (interval.low, interval.high) == pytest.approx((5.0, 5.0))


def test_the_same_run_twice_is_no_difference():
    values = np.random.default_rng(1).exponential(size=100)
    assert block_bootstrap(values, values, percentile_of(0.95), 2, FEW).sign == 0


def test_the_same_seed_gives_the_same_interval():
    a, b = np.random.default_rng(1).exponential(size=(2, 100))
    assert block_bootstrap(a, b, mean_of, 3, FEW) == block_bootstrap(a, b, mean_of, 3, FEW)
    assert block_bootstrap(a, b, mean_of, 3, FEW) != block_bootstrap(a, b, mean_of, 4, FEW)


def alike(rng: np.random.Generator) -> list[np.ndarray]:
    """Two runs that differ by noise alone, in which neighbours resemble each other."""
    shared, *noise = rng.normal(size=(3, 609))
    return [np.convolve(9.0 * shared + each, SMEAR, mode="valid") for each in noise]


def winners(resampling: Resampling) -> int:
    rng = np.random.default_rng(30)
    return sum(
        block_bootstrap(*alike(rng), mean_of, seed, resampling).sign != 0 for seed in range(SEEDS)
    )


def test_a_against_a_names_a_winner_as_often_as_the_level_says():
    assert within(winners(FEW), SEEDS, 0.05)


def test_requests_resampled_one_by_one_name_too_many_winners():
    """The sum of ten such values has ten times the variance: 1.96 / sqrt(10) deviations, 54 %."""
    alone = winners(Resampling(199, block_requests=1))
    assert within(alone, SEEDS, 0.54)


@pytest.mark.parametrize("figure", [mean_of, percentile_of(0.95)])
def test_the_same_requests_on_a_slower_replica_are_detected(figure):
    rng = np.random.default_rng(40)
    gaps_ms, service_ms = rng.exponential(10.0, 3_000), rng.exponential(7.0, 3_000)
    waits = waits_of(gaps_ms, service_ms)
    slower = waits_of(gaps_ms, 1.1 * service_ms)
    assert block_bootstrap(slower, waits, figure, 5, FEW).sign == HIGHER


def test_a_goodput_is_the_mean_of_what_was_met():
    met_by_a, met_by_b = np.arange(100) % 4 > 0, np.arange(100) % 2 > 0
    interval = block_bootstrap(met_by_a, met_by_b, mean_of, 1, FEW)
    assert interval.estimate == 0.25
    assert interval.sign == HIGHER


def test_a_figure_may_need_several_columns():
    """Cached over prompt tokens: all of them against half."""
    prompts = np.arange(1.0, 61.0)
    interval = block_bootstrap(
        np.stack([prompts, prompts]),
        np.stack([prompts / 2, prompts]),
        lambda columns: columns[0].sum(axis=-1) / columns[1].sum(axis=-1),
        1,
        FEW,
    )
    assert (interval.estimate, interval.n) == (0.5, 60)
    assert (interval.low, interval.high) == pytest.approx((0.5, 0.5))


@pytest.mark.parametrize("absent", [0, 3])
def test_figures_of_many_resamples_at_once_are_those_of_one_by_one(absent):
    values = np.random.default_rng(2).exponential(size=(5, 21))
    for row, column in enumerate(np.arange(absent) * 4):
        values[row, column:] = np.nan if column else values[row, column:]
    there = [row[~np.isnan(row)] for row in values]
    assert mean_of(values) == pytest.approx([row.mean() for row in there])
    expected = [nearest_rank(np.sort(row), 0.9) for row in there]
    assert percentile_of(0.9)(values).tolist() == expected


@pytest.mark.parametrize("figure", [mean_of, percentile_of(0.99)])
def test_a_figure_by_itself_lies_as_far_apart_as_from_nothing(figure):
    values = np.random.default_rng(8).exponential(size=500)
    nothing = np.zeros(500)
    assert own_bootstrap(values, figure, 3, FEW) == block_bootstrap(values, nothing, figure, 3, FEW)


def test_absent_values_are_not_counted():
    a = np.tile([4.0, np.nan], 50)
    interval = block_bootstrap(a, np.full(100, 1.0), mean_of, 1, FEW)
    assert (interval.low, interval.estimate, interval.high) == pytest.approx((3.0, 3.0, 3.0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 2], [1, 2, 3]), r"A has the shape \(2,\), B \(3,\); expected the same requests"),
        (([1], [1]), "expected the same requests in both, at least two"),
        (([1, 2], [np.nan, np.nan]), "the figure is absent in a resample, because too few"),
    ],
)
def test_columns_that_have_no_figure_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        block_bootstrap(*arguments, mean_of, 1, FEW)


@pytest.mark.parametrize(
    ("resampling", "message"),
    [
        (Resampling(resamples=0), "bootstrap: resamples is 0; expected an integer >= 1"),
        (Resampling(block_requests=51), "block_requests is 51; expected 1..50: two blocks"),
        (Resampling(level=1.0), "interval: level is 1.0; expected a number between 0 and 1"),
    ],
)
def test_a_resampling_that_cannot_be_is_refused(resampling, message):
    with pytest.raises(InputError, match=message):
        block_bootstrap(np.arange(100), np.arange(100), mean_of, 1, resampling)
