"""Is A really different from B? Intervals on differences, and what they support.

A gain of one run may be its noise (inference-sim/inference-sim#321). So A and B see the same
requests (common random numbers), it is their **difference** that gets an interval, and an interval
that holds 0 names no winner.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pointsman.core.errors import InputError, wrong_value
from pointsman.verdict.student import central_t

HIGHER, LOWER = 1, -1


@dataclass(frozen=True, slots=True)
class Interval:
    """A difference A - B and where it may lie, in the unit of what was compared."""

    estimate: float
    low: float
    high: float
    level: float  # how often such an interval holds the true difference, 0..1
    n: int  # replications, or requests of one trace
    magnitude: float  # |A| + |B|: what a relative error of both is relative to

    @property
    def sign(self) -> int:
        """HIGHER or LOWER where A is, at this level; 0 where the interval names no winner."""
        if self.low > 0.0:
            return HIGHER
        return LOWER if self.high < 0.0 else 0


def paired_interval(a: ArrayLike, b: ArrayLike, level: float = 0.95) -> Interval:
    """The mean of A - B over replications, each of which gave A and B the same random numbers.

    Student's t on the paired differences: right for normal ones, and near it for means of many
    requests. One replication says nothing about noise: its interval is infinite.
    Raises InputError for none, unequal numbers, values that are not finite, a level outside 0..1.
    Source: Law, Simulation Modeling and Analysis, on comparing two systems by paired t and on
    common random numbers.
    """
    of_a, of_b = _replications("a", a), _replications("b", b)
    check_level(level)
    if of_a.size != of_b.size:
        raise wrong_value("paired interval", "b", f"{of_b.size} values", f"{of_a.size}, as in a")
    differences = of_a - of_b
    estimate = float(differences.mean())
    half = math.inf
    if differences.size > 1:
        deviation = float(differences.std(ddof=1)) / math.sqrt(differences.size)
        half = central_t(level, differences.size - 1) * deviation
    magnitude = abs(float(of_a.mean())) + abs(float(of_b.mean()))
    return Interval(estimate, estimate - half, estimate + half, level, of_a.size, magnitude)


def supported(interval: Interval, sign: int, known_error_fraction: float) -> bool:
    """Whether noise and the model's known error together leave A - B with that sign.

    ``known_error_fraction``: how far, relative to the truth, the model was off where it was held
    against real runs; 0.1 is 10 %. A and B may be off in opposite directions.
    """
    if not 0.0 <= known_error_fraction < math.inf:
        raise wrong_value(
            "supported", "known_error_fraction", known_error_fraction, "a finite number >= 0"
        )
    return known_error_fraction < bearable_error_fraction(interval, sign)


def bearable_error_fraction(interval: Interval, sign: int) -> float:
    """The known error from which on the interval does not support the sign; 0 if it never does.

    With both off by up to e, of what is predicted as A at least A / (1 + e) is true, and of B at
    most B / (1 - e); the first is the larger one iff A - B > e (A + B). The bound of the interval
    that is nearer to 0 stands for A - B. This is the margin in which a verdict is undecided.
    """
    if sign not in (HIGHER, LOWER):
        raise wrong_value("supported", "sign", sign, "1 (A is higher) or -1 (A is lower)")
    nearest = interval.low if sign == HIGHER else -interval.high
    return nearest / interval.magnitude if nearest > 0.0 else 0.0


def check_level(level: float) -> None:
    """Refuse a level outside 0..1, ends excluded."""
    if not 0.0 < level < 1.0:
        raise wrong_value("interval", "level", level, "a number between 0 and 1, such as 0.95")


def _replications(name: str, values: ArrayLike) -> NDArray[Any]:
    column = np.asarray(values, dtype=np.float64)
    if column.ndim != 1 or column.size == 0:
        raise InputError(
            f"paired interval: {name} has the shape {column.shape};"
            " expected one value a replication, at least one"
        )
    wrong = column[~np.isfinite(column)]
    if wrong.size:
        raise wrong_value("paired interval", f"a value of {name}", float(wrong[0]), "finite ones")
    return column
