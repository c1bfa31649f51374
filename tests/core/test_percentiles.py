"""Nearest rank, and sums from left to right."""

from __future__ import annotations

import numpy as np
import pytest

from pointsman.core.percentiles import left_to_right_sum, nearest_rank


@pytest.mark.parametrize(
    ("quantile", "expected"),
    [(0.0, 1), (0.1, 1), (0.11, 2), (0.5, 5), (0.9, 9), (0.95, 10), (0.99, 10), (1.0, 10)],
)
def test_ten_values_have_these_percentiles(quantile, expected):
    assert nearest_rank([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], quantile) == expected


def test_the_sum_is_naive():
    values = np.array([1e16, 1.0, 1.0, -1e16])
    assert left_to_right_sum(values) == 0.0  # a compensated sum would say 2.0
    assert left_to_right_sum(np.array([])) == 0.0


def test_the_sum_of_many_equals_a_plain_loop():
    values = np.random.default_rng(5).exponential(1.0, 10_001)
    total = 0.0
    for value in values.tolist():
        total += value
    assert left_to_right_sum(values) == total
