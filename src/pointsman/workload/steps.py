"""Arrivals recorded in steps: found, and spread inside them.

Mooncake's traces record arrivals every 3 s (kvcache-ai/Mooncake ``FAST25-release/traces``; the
recorded instants are off that grid by up to 3 ms), so that ten requests seem to come at once.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pointsman.core.errors import InputError
from pointsman.workload.streams import stream
from pointsman.workload.workload import Floats, Workload

# A step is claimed when at least half of the requests share their instant with another one and
# 99 in 100 gaps between instants are a whole number of steps, to within a hundredth of a step.
_TIED_FRACTION = 0.5
_FITTING_FRACTION = 0.99
_TOLERANCE = 0.01
_FEWEST_INSTANTS = 3


def arrival_step_ms(arrival_ms: Floats) -> float | None:
    """The step in which ascending arrivals were recorded; None where there is none."""
    instants, counts = np.unique(arrival_ms, return_counts=True)
    if instants.size < _FEWEST_INSTANTS:
        return None
    tied = counts[counts > 1].sum() / arrival_ms.size
    gaps = np.diff(instants)
    step_ms = float(np.median(gaps))
    steps = gaps / step_ms
    off = np.abs(steps - np.maximum(np.rint(steps), 1.0))
    fits = np.count_nonzero(off <= _TOLERANCE) / gaps.size
    return step_ms if tied >= _TIED_FRACTION and fits >= _FITTING_FRACTION else None


def spread_arrivals(workload: Workload, seed: int) -> Workload:
    """The same rows in the same order, each arriving at a uniform draw inside its step.

    A step reaches from its instant to the next one, at most one step further. Same seed, same
    arrivals. Raises InputError where the arrivals show no step.
    """
    arrival_ms = workload.arrival_ms
    step_ms = arrival_step_ms(arrival_ms)
    if step_ms is None:
        raise InputError(
            f"{workload.source.name}: the arrivals show no step to spread them in;"
            " expected a trace whose requests share instants at equal distances"
        )
    instants, which = np.unique(arrival_ms, return_inverse=True)
    widths = np.minimum(np.diff(instants, append=np.inf), step_ms)
    draws = stream(seed, "spread").random(arrival_ms.size)
    # Sorted draws of a step are as likely as unsorted ones, and keep the order of the rows.
    spread = np.sort(arrival_ms + draws * widths[which])
    return replace(workload, arrival_ms=spread)
