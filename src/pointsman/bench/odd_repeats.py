"""Repeats that took far longer or shorter than usual: something else used the machine then."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

ODD_RATIO = 3.0  # not derived: repeats on a quiet machine lie within some tenths of one another
LEAST_REPEATS = 3  # of two nothing says which is the usual one


def odd_repeats(mean_e2e_ms: Sequence[float | None]) -> tuple[str | None, ...]:
    """Of each repeat a sentence where its mean E2E is ODD_RATIO times the median of all or more,
    or as much below it; None where it is not, or where fewer than LEAST_REPEATS are known."""
    known = [mean_ms for mean_ms in mean_e2e_ms if mean_ms]
    if len(known) < LEAST_REPEATS:
        return (None,) * len(mean_e2e_ms)
    usual_ms = statistics.median(known)
    return tuple(_sentence(mean_ms, usual_ms) for mean_ms in mean_e2e_ms)


def _sentence(mean_ms: float | None, usual_ms: float) -> str | None:
    if not mean_ms or abs(math.log(mean_ms / usual_ms)) < math.log(ODD_RATIO):
        return None
    return (
        f"its mean E2E of {mean_ms:,.4g} ms is {mean_ms / usual_ms:.3g} times the median of all"
        f" repeats, {usual_ms:,.4g} ms: something else may have used this machine; measure again on"
        " a quiet one"
    )
