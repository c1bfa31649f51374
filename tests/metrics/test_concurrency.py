"""How much is held at the same time."""

import numpy as np
import pytest

from pointsman.metrics.concurrency import most_at_once


@pytest.mark.parametrize(
    ("spans_ms", "amounts", "most"),
    [
        ([], [], 0),
        ([(0, 10)], [5], 5),
        ([(0, 10), (4, 6), (5, 20)], [1, 1, 1], 3),
        ([(0, 10), (4, 6), (7, 20)], [3, 9, 4], 12),  # 3 + 9; then 3 + 4
    ],
)
def test_the_most_is_what_overlaps(spans_ms, amounts, most):
    begin_ms, end_ms = np.array(spans_ms, dtype=float).reshape(-1, 2).T
    assert most_at_once(begin_ms, end_ms, np.array(amounts, dtype=np.int64)) == most


def test_what_ends_makes_room_for_what_begins_then():
    begin_ms, end_ms = np.array([10.0, 0.0]), np.array([20.0, 10.0])
    assert most_at_once(begin_ms, end_ms, np.array([2, 3])) == 3
