"""How far a simulated run is from the recorded one, in the figures that users look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pointsman.calibrate.recording import Times
from pointsman.core.percentiles import left_to_right_sum, nearest_rank
from pointsman.workload.workload import Floats

QUANTITIES = ("ttft_ms", "tpot_ms", "e2e_ms")
FIGURES = ("mean", "p50", "p95")


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure as it was recorded and as it was simulated; ``error`` is relative, None of 0.

    ``repeats`` has the same figure of further recorded runs of the same requests.
    """

    recorded: float
    simulated: float
    repeats: tuple[float, ...] = ()

    @property
    def error(self) -> float | None:
        """What the simulation has more, as a fraction of what was recorded."""
        return self.simulated / self.recorded - 1.0 if self.recorded else None

    @property
    def noise(self) -> float | None:
        """The largest difference between two recorded runs, in parts of the first; None of one run
        alone."""
        if not self.repeats or not self.recorded:
            return None
        runs = (self.recorded, *self.repeats)
        return (max(runs) - min(runs)) / self.recorded

    @property
    def is_within_noise(self) -> bool | None:
        """Whether the error is no larger than what the engine itself differs by; None: unknown."""
        if self.error is None or self.noise is None:
            return None
        return abs(self.error) <= self.noise


# Quantity -> figure. TPOT is over requests of more than one output token, and absent without any.
Agreement = dict[str, dict[str, Figure]]


def agreement(recorded: Times, simulated: Times, repeats: Sequence[Times] = ()) -> Agreement:
    """Mean, P50 and P95 of TTFT, TPOT and E2E, side by side; ``repeats`` are of the same requests,
    so that what has a TPOT in one run has one in all."""
    sides = {}
    for name in QUANTITIES:
        runs = [_present(getattr(run, name)) for run in (recorded, simulated, *repeats)]
        if runs[0].size:
            columns = zip(*map(_figures, runs), strict=True)
            figures = (Figure(first, ours, tuple(rest)) for first, ours, *rest in columns)
            sides[name] = dict(zip(FIGURES, figures, strict=True))
    return sides


def _present(values: Floats) -> Floats:
    return values[~np.isnan(values)]


def _figures(values: Floats) -> tuple[float, float, float]:
    ordered = np.sort(values)
    mean = left_to_right_sum(ordered) / ordered.size
    return mean, nearest_rank(ordered, 0.50), nearest_rank(ordered, 0.95)
