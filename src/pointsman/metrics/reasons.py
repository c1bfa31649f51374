"""How often each reason decided, over time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pointsman.workload.workload import Floats

MOST_STEPS = 60
_MS_PER_SECOND = 1000.0


@dataclass(frozen=True, slots=True)
class ReasonsOverTime:
    """Choices of each reason in steps of equal length; step k begins at k x ``step_ms``.

    Every choice is in one step, so that a reason's counts add up to all it decided. At most
    MOST_STEPS of whole seconds.
    """

    step_ms: float
    counts: dict[str, tuple[int, ...]]


def reasons_over_time(
    arrival_ms: Floats, reason: NDArray[Any], names: tuple[str, ...]
) -> ReasonsOverTime:
    """Count by arrival; ``reason`` is an index into ``names``."""
    last_ms = float(arrival_ms.max(initial=0.0))
    step_ms = _MS_PER_SECOND * max(1, math.ceil(last_ms / (MOST_STEPS * _MS_PER_SECOND)))
    place = np.minimum(arrival_ms / step_ms, MOST_STEPS - 1).astype(np.int64)
    steps = int(place.max(initial=0)) + 1
    return ReasonsOverTime(
        step_ms=step_ms,
        counts={
            name: tuple(np.bincount(place[reason == k], minlength=steps).tolist())
            for k, name in enumerate(names)
        },
    )
