"""How far a simulated run is from the recorded one, in the figures that users look at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pointsman.calibrate.recording import Times
from pointsman.core.percentiles import left_to_right_sum, nearest_rank
from pointsman.workload.workload import Floats

QUANTITIES = ("ttft_ms", "tpot_ms", "e2e_ms")
FIGURES = ("mean", "p50", "p95")


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure as it was recorded and as it was simulated; ``error`` is relative, None of 0."""

    recorded: float
    simulated: float

    @property
    def error(self) -> float | None:
        """What the simulation has more, as a fraction of what was recorded."""
        return self.simulated / self.recorded - 1.0 if self.recorded else None


# Quantity -> figure. TPOT is over requests of more than one output token, and absent without any.
Agreement = dict[str, dict[str, Figure]]


def agreement(recorded: Times, simulated: Times) -> Agreement:
    """Mean, P50 and P95 of TTFT, TPOT and E2E, side by side."""
    sides = {}
    for name in QUANTITIES:
        values, ours = getattr(recorded, name), getattr(simulated, name)
        values, ours = values[~np.isnan(values)], ours[~np.isnan(ours)]
        if values.size:
            pairs = zip(_figures(values), _figures(ours), strict=True)
            sides[name] = dict(zip(FIGURES, (Figure(*pair) for pair in pairs), strict=True))
    return sides


def _figures(values: Floats) -> tuple[float, float, float]:
    ordered = np.sort(values)
    mean = left_to_right_sum(ordered) / ordered.size
    return mean, nearest_rank(ordered, 0.50), nearest_rank(ordered, 0.95)
