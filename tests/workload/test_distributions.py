from __future__ import annotations

import math

import numpy as np
import pytest

from pointsman.core.errors import InputError
from pointsman.workload.distributions import (
    Constant,
    Empirical,
    Exponential,
    Geometric,
    Lognormal,
    Normal,
    Uniform,
    distribution_of_text,
)
from pointsman.workload.streams import stream

COUNT = 40_000


def drawn(distribution) -> np.ndarray:
    return distribution.draw(COUNT, stream(1, "test"))


@pytest.mark.parametrize(
    ("distribution", "mean", "deviation"),
    [
        (Constant(7), 7, 0),
        (Uniform(10, 20), 15, 3.2),  # sqrt((11 ** 2 - 1) / 12)
        (Uniform(0.5, 1.5), 1, 0.289),
        (Normal(1000, 50), 1000, 50),
        (Lognormal(0.5, mean=300), 300, 160),  # mean * sqrt(exp(0.25) - 1)
        (Lognormal(0.5, median=300), 340, 181),  # 300 * exp(0.125)
        (Exponential(80), 80, 80),
        (Geometric(4), 4, 3.46),  # sqrt(0.75) / 0.25
        (Empirical([2, 2, 8]), 4, 2.83),
    ],
)
def test_draws_have_the_mean_and_the_spread_asked_for(distribution, mean, deviation):
    values = drawn(distribution)
    assert values.mean() == pytest.approx(mean, rel=0.03)
    assert values.std() == pytest.approx(deviation, rel=0.05, abs=1e-9)


@pytest.mark.parametrize(
    "distribution",
    [
        Uniform(90, 110),
        Normal(100, 50, min=90, max=110),
        Lognormal(1, mean=100, min=90, max=110),
        Exponential(100, min=90, max=110),
    ],
)
def test_draws_stay_between_the_least_and_the_most(distribution):
    values = drawn(distribution)
    assert (values.min(), values.max()) == (90, 110)


def test_a_small_spread_with_a_least_value_near_the_mean_is_legal():
    assert drawn(Normal(mean=1000, stdev=50, min=900)).min() >= 900


def test_a_spread_of_nothing_is_legal():
    assert set(drawn(Normal(mean=5, stdev=0))) == {5.0}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Constant(-1), "constant distribution: value is -1; expected a number >= 0"),
        (lambda: Uniform(5, 4), "uniform distribution: max is 4; expected a number >= min, 5"),
        (lambda: Uniform(5, math.inf), "uniform distribution: max is inf"),
        (lambda: Normal(math.nan, 1), "normal distribution: mean is nan"),
        (lambda: Normal(1, -1), "normal distribution: stdev is -1; expected a number >= 0"),
        (lambda: Lognormal(1), "expected mean or median, one of the two"),
        (lambda: Lognormal(1, mean=1, median=1), "expected mean or median, one of the two"),
        (lambda: Lognormal(1, mean=0), "lognormal distribution: mean is 0; expected a number > 0"),
        (lambda: Geometric(0.5), "geometric distribution: mean is 0.5; expected a number >= 1"),
        (lambda: Empirical([]), "expected one or more numbers >= 0"),
        (lambda: Empirical([1, -1]), "expected one or more numbers >= 0"),
    ],
)
def test_each_field_is_checked_by_its_own_meaning(make, message):
    with pytest.raises(InputError) as caught:
        make()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "distribution"),
    [
        ("512", Constant(512)),
        ("constant:value=3", Constant(3)),
        ("uniform:min=1,max=9", Uniform(1, 9)),
        ("lognormal:median=90,sigma=1.5,max=900", Lognormal(1.5, median=90, max=900)),
        ("normal:mean=1000,stdev=50,min=900", Normal(1000, 50, min=900)),
    ],
)
def test_a_distribution_is_written_as_kind_and_values(text, distribution):
    assert distribution_of_text(text) == distribution


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("many", "--turns: value is 'many'; expected a number"),
        ("lognorm:mean=1,sigma=1", "distribution 'lognorm' is unknown; expected one of constant,"),
        ("normal:mean=1,sd=1", "--turns: value of normal 'sd' is unknown; expected one of max,"),
        ("normal:mean=1", "--turns: stdev of normal is missing; expected a number"),
        ("geometric:mean=x", "--turns: mean is 'x'; expected a number"),
        ("geometric:mean=0", "--turns: geometric distribution: mean is 0.0; expected a number >="),
    ],
)
def test_a_text_that_is_wrong_is_refused_naming_the_flag(text, message):
    with pytest.raises(InputError) as caught:
        distribution_of_text(text, "--turns")
    assert message in str(caught.value)
