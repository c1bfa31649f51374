"""The highest rate that a shape holds: doubled or halved until it turns, then bisected.

A rate far from the offered one need not be known well: 10 %; near it, where it decides, 2 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

NEAR_TOLERANCE, FAR_TOLERANCE = 0.02, 0.10
NEAR_FACTOR = 2.0  # farther than this from the offered rate is far
LEAST_FACTOR = 1 / 64  # slower than this nobody asks: it is a request alone on the fleet
MOST_FACTOR = 64.0

Holds = Callable[[float], bool]


@dataclass(frozen=True, slots=True)
class RateLimit:
    """In multiples of the offered rate: ``held`` was simulated and held, ``failed`` was not held.

    ``held`` is None where not even the lowest rate held; ``failed`` is None where the highest did.
    """

    held: float | None
    failed: float | None


NEVER = RateLimit(None, LEAST_FACTOR)


def highest_rate(holds: Holds, *, at_one: bool, most: float = MOST_FACTOR) -> RateLimit:
    """Search from the offered rate, of which is known whether it is held.

    ``most`` is the end of what may be asked.
    """
    if at_one:
        return rate_from(holds, 1.0, most)
    if not holds(LEAST_FACTOR):
        return NEVER
    failed = 1.0
    while failed > 2.0 * LEAST_FACTOR:
        held = failed / 2.0
        if holds(held):
            return _bisected(holds, held, failed)
        failed = held
    return _bisected(holds, LEAST_FACTOR, failed)


def rate_from(holds: Holds, held: float, most: float = MOST_FACTOR) -> RateLimit:
    """Search upwards from a rate that is held."""
    while held < most:
        further = min(2.0 * held, most)
        if not holds(further):
            return _bisected(holds, held, further)
        held = further
    return RateLimit(held, None)


def tolerance(factor: float) -> float:
    """How closely a limit near this factor is found, as a fraction."""
    near = 1.0 / NEAR_FACTOR < factor < NEAR_FACTOR
    return NEAR_TOLERANCE if near else FAR_TOLERANCE


def _bisected(holds: Holds, held: float, failed: float) -> RateLimit:
    while failed / held > 1.0 + tolerance(math.sqrt(held * failed)):
        middle = math.sqrt(held * failed)
        if holds(middle):
            held = middle
        else:
            failed = middle
    return RateLimit(held, failed)
