"""Blocks as long as requests resemble each other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.verdict.block_length import block_requests


def autoregressive(rng: np.random.Generator, n: int, correlation: float) -> np.ndarray:
    """A series in which each value resembles the one before it."""
    values = rng.normal(size=n)
    for i in range(1, n):
        values[i] += correlation * values[i - 1]
    return values


@pytest.mark.parametrize("correlation", [0.5, 0.8])
def test_the_length_is_near_the_optimum_that_is_known_for_a_first_order_series(correlation):
    """Covariances fall as r^k, so the rule's ratio is 2 r / (1 - r^2) and the optimum
    (1.5 n ratio^2)^(1/3)."""
    rng, n = np.random.default_rng(7), 2_000
    chosen = [block_requests(autoregressive(rng, n, correlation)) for _ in range(30)]
    optimum = math.cbrt(1.5 * n * (2 * correlation / (1 - correlation**2)) ** 2)
    assert np.mean(chosen) == pytest.approx(optimum, rel=0.2)


def test_values_that_know_nothing_of_each_other_take_the_cube_root():
    assert block_requests(np.random.default_rng(3).normal(size=8_000)) in range(20, 30)


@pytest.mark.parametrize(("n", "length"), [(1, 1), (2, 1), (27, 3), (1000, 10)])
def test_values_that_are_all_the_same_take_the_cube_root(n, length):
    assert block_requests(np.zeros(n)) == length


@given(
    st.lists(st.floats(-1e6, 1e6) | st.just(math.nan), min_size=1, max_size=80),
    st.integers(1, 30),
)
def test_there_are_at_least_five_blocks_of_at_least_one_request(values, repeats):
    series = np.repeat(values, repeats)
    assert 1 <= block_requests(series) <= max(1, series.size // 5)


def test_absent_values_count_as_the_mean():
    values = autoregressive(np.random.default_rng(5), 1_000, 0.8)
    values -= values[1:].mean()
    absent, zero = values.copy(), values.copy()
    absent[0], zero[0] = np.nan, 0.0
    assert block_requests(absent) == pytest.approx(block_requests(zero), abs=1)
    assert block_requests(np.full(27, np.nan)) == 3
