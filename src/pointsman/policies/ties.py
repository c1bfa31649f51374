"""Ties at random, from the one draw that a request gets."""

from __future__ import annotations

from pointsman.core.compiled import inlined


@inlined
def one_in(draw: float, count: int) -> tuple[bool, float]:
    """Whether a chance of one in ``count`` comes up, and what is left of the draw: uniform again.

    Who takes the k-th of the equals with a chance of one in k has taken each of them alike.
    """
    scaled = draw * count
    if scaled < 1.0:
        return True, scaled
    return False, (scaled - 1.0) / (count - 1.0)
