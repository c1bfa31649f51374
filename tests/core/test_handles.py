"""Compiled code that finds arrays by a handle sees and changes the arrays themselves."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from numba import types

from pointsman.core.compiled import kernel
from pointsman.core.handles import HANDLE_TYPE, array_at, handle_of

PAIR = np.dtype([("count", np.int32), ("value", np.float64)], align=True)

PAIRS = array_at(types.Array(numba.from_dtype(PAIR), 1, "C"))
GRID = array_at(types.Array(types.int32, 2, "C"))
CUBE = array_at(types.Array(types.uint64, 3, "C"))


@kernel(types.float64(HANDLE_TYPE))
def touch(handle: Any) -> float:
    """Write into each array, at its far corner, and read from it."""
    pairs = PAIRS(handle[0], (handle[1],))
    grid = GRID(handle[2], (handle[3], handle[4]))
    cube = CUBE(handle[5], (handle[6], handle[7], handle[8]))
    pairs[pairs.shape[0] - 1].count = grid.shape[1]
    grid[grid.shape[0] - 1, grid.shape[1] - 1] = cube.shape[2]
    cube[1, 2, 3] += np.uint64(5)
    return pairs[1].value + grid[1, 2]  # type: ignore[no-any-return]


def test_what_is_written_by_the_handle_stands_in_the_arrays_and_nowhere_else():
    pairs = np.zeros(3, dtype=PAIR)
    pairs["value"] = [1.5, 2.5, 3.5]
    grid = np.arange(12, dtype=np.int32).reshape(3, 4)
    cube = np.zeros((2, 3, 4), dtype=np.uint64)
    assert touch(handle_of((pairs, grid, cube))) == 2.5 + 6
    assert pairs["count"].tolist() == [0, 0, 4]
    assert grid.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 4]]
    assert cube.sum() == cube[1, 2, 3] == 5


def test_an_array_with_gaps_has_no_handle():
    with pytest.raises(AssertionError, match="contiguous"):
        handle_of([np.zeros((4, 4))[:, ::2]])
