"""Is A better than B: intervals on paired differences, and what they support."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pointsman import InputError
from pointsman.verdict.uncertainty import (
    HIGHER,
    LOWER,
    Interval,
    bearable_error_fraction,
    paired_interval,
    supported,
)
from tests.verdict.binomial import within

REPLICATIONS, SEEDS = 8, 400


def test_three_replications_by_hand():
    """Differences 2, 1, 4: mean 7/3, variance 7/3; t of 2 degrees is 4.303."""
    interval = paired_interval([12, 11, 14], [10, 10, 10])
    half = 4.302653 * math.sqrt(7 / 9)
    assert interval.estimate == pytest.approx(7 / 3)
    assert (interval.low, interval.high) == pytest.approx((7 / 3 - half, 7 / 3 + half), rel=1e-6)
    assert (interval.n, interval.level) == (3, 0.95)
    assert interval.magnitude == pytest.approx(37 / 3 + 10)


def test_one_replication_names_no_winner():
    interval = paired_interval([1.0], [100.0])
    assert (interval.low, interval.high, interval.sign) == (-math.inf, math.inf, 0)
    assert not supported(interval, LOWER, 0.0)


def test_the_same_runs_twice_are_no_difference():
    interval = paired_interval([3.0, 9.0, 4.0], [3.0, 9.0, 4.0])
    assert (interval.low, interval.high, interval.sign) == (0.0, 0.0, 0)


def test_what_both_share_does_not_widen_the_interval():
    shared = np.array([10.0, 1000.0, 50.0, 400.0])
    assert paired_interval(shared + 2.0, shared).sign == HIGHER
    assert paired_interval(shared, shared + 2.0).sign == LOWER


def test_a_against_a_names_a_winner_as_often_as_the_level_says():
    """Alike but for noise: 1 of 20 intervals misses 0, within what chance allows in 1 of 1000."""
    rng = np.random.default_rng(20)
    winners = sum(
        paired_interval(shared + rng.normal(size=REPLICATIONS), shared + noise).sign != 0
        for shared, noise in rng.normal(size=(SEEDS, 2, REPLICATIONS)) * [[[9.0], [1.0]]]
    )
    assert within(winners, SEEDS, 0.05)


def test_a_slower_a_is_detected():
    """2 slower with noise of 0.5: a winner 11 standard errors away, in every one of the seeds."""
    rng = np.random.default_rng(21)
    for shared in rng.normal(size=(SEEDS, REPLICATIONS)) * 9.0:
        slower = shared + 2.0 + 0.5 * rng.normal(size=REPLICATIONS)
        assert paired_interval(slower, shared).sign == HIGHER


def test_a_higher_level_is_a_wider_interval():
    narrow, wide = (paired_interval([1, 2, 4], [0, 0, 0], level) for level in (0.9, 0.99))
    assert wide.low < narrow.low < narrow.high < wide.high


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 2], [1]), "paired interval: b is '1 values'; expected 2, as in a"),
        (([], []), r"paired interval: a has the shape \(0,\); expected one value a replication"),
        (([1, 2], [1, math.nan]), "a value of b is nan; expected finite ones"),
        (([1, 2], [1, 2], 95), "interval: level is 95; expected a number between 0 and 1"),
    ],
)
def test_what_gives_no_interval_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        paired_interval(*arguments)


def exact(a: float, b: float) -> Interval:
    """A difference without noise."""
    return paired_interval([a, a], [b, b])


def test_a_sign_stands_until_the_models_error_could_turn_it_round():
    """80 and 120, each off by up to 20 %: both may truly be 80 / 0.8 = 120 / 1.2 = 100."""
    assert bearable_error_fraction(exact(80, 120), LOWER) == pytest.approx(0.2)
    assert supported(exact(80, 120), LOWER, 0.19)
    assert not supported(exact(80, 120), LOWER, 0.21)
    assert not supported(exact(80, 120), HIGHER, 0.0)


def test_a_gain_below_the_models_own_error_is_not_supported():
    """17.6 %: the error of the mean TTFT that BLIS states for its own model."""
    assert not supported(exact(900, 1000), LOWER, 0.176)
    assert supported(exact(500, 1000), LOWER, 0.176)


def test_noise_and_the_models_error_count_together():
    """The bound nearer to 0, 30 of 200, bears 15 %; the estimate alone would bear 20 %."""
    noisy = Interval(40.0, 30.0, 50.0, 0.95, 10, magnitude=200.0)
    assert bearable_error_fraction(noisy, HIGHER) == 0.15


@pytest.mark.parametrize("error", [-0.1, math.nan, math.inf])
def test_an_error_that_is_none_is_refused(error):
    with pytest.raises(
        InputError, match=r"known_error_fraction is .* expected a finite number >= 0"
    ):
        supported(exact(1, 2), LOWER, error)


def test_a_sign_that_is_none_is_refused():
    with pytest.raises(InputError, match=r"sign is 0; expected 1 \(A is higher\) or -1"):
        supported(exact(1, 2), 0, 0.1)
