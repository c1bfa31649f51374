"""Percentiles by nearest rank, the one method used everywhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

PERCENTILE_METHOD = "nearest_rank"


def nearest_rank(ordered: Sequence[float] | NDArray[Any], quantile: float) -> float:
    """The value at rank ``ceil(quantile * n)`` (1-based, at least 1) of an ascending sequence.

    Raises IndexError on an empty sequence. Source: the lesson on serving replica routing.
    """
    return float(ordered[max(0, math.ceil(quantile * len(ordered)) - 1)])


def left_to_right_sum(values: NDArray[np.float64]) -> float:
    """The sum of doubles added one by one in order, as the lessons' figures are defined.

    ``numpy.sum`` adds pairwise and ``sum`` compensates from Python 3.12 on; both differ in the
    last bits.
    """
    if values.size == 0:
        return 0.0
    return float(np.add.accumulate(values)[-1])
