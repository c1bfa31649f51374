"""When requests arrive: schedules of absolute times, drawn once and never rescaled.

Draws are summed as they are. Scaling them so that the last arrival falls on ``requests / rate``,
as some load generators do, would fix the sum of the gaps, and they would no longer be Poisson.
The realised rate therefore differs a little from the one asked for; ``trace info`` shows it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from pointsman.core.errors import InputError, wrong_value
from pointsman.workload.workload import MAX_TIME_MS, Floats, Workload


class Arrivals(Protocol):
    """An arrival process."""

    def draw_ms(self, count: int, random: np.random.Generator) -> Floats:
        """The first ``count`` arrivals from time 0 on, ascending, in ms."""
        ...


@dataclass(frozen=True, slots=True)
class GammaArrivals:
    """Independent gaps with a gamma distribution of shape ``burstiness`` and mean 1 / rate.

    Burstiness 1 is Poisson, below it arrivals bunch, above it they even out; the gaps'
    coefficient of variation is ``burstiness ** -0.5``. Source: vllm-project/vllm
    ``vllm/benchmarks/serve.py`` (``--burstiness``).
    """

    rate_rps: float
    burstiness: float = 1.0

    def __post_init__(self) -> None:
        _check_positive("rate_rps", self.rate_rps)
        _check_positive("burstiness", self.burstiness)

    def draw_ms(self, count: int, random: np.random.Generator) -> Floats:
        """Sums of the gaps."""
        mean_ms = 1000.0 / self.rate_rps
        gaps_ms = random.standard_gamma(self.burstiness, count) * (mean_ms / self.burstiness)
        return np.cumsum(gaps_ms)


@dataclass(frozen=True, slots=True)
class PoissonArrivals:
    """Independent exponential gaps of mean 1 / rate."""

    rate_rps: float

    def __post_init__(self) -> None:
        _check_positive("rate_rps", self.rate_rps)

    def draw_ms(self, count: int, random: np.random.Generator) -> Floats:
        """Sums of the gaps."""
        return np.cumsum(random.standard_exponential(count) * (1000.0 / self.rate_rps))


@dataclass(frozen=True, slots=True)
class ConstantArrivals:
    """Request k at k / rate; draws nothing."""

    rate_rps: float

    def __post_init__(self) -> None:
        _check_positive("rate_rps", self.rate_rps)

    def draw_ms(self, count: int, random: np.random.Generator) -> Floats:
        """Equal gaps from time 0 on."""
        return np.arange(count, dtype=np.float64) * (1000.0 / self.rate_rps)


@dataclass(frozen=True, slots=True, eq=False)
class ReplayedArrivals:
    """The arrivals of a trace, moved so that the first is at 0; draws nothing."""

    arrival_ms: Any

    def draw_ms(self, count: int, random: np.random.Generator) -> Floats:
        """The first ``count`` of them. Raises InputError where the trace has fewer."""
        recorded = np.asarray(self.arrival_ms, dtype=np.float64)
        if count > recorded.size:
            wanted = f"at most {recorded.size}, the requests of the replayed trace"
            raise wrong_value("generator", "requests", count, wanted)
        return recorded[:count] - (recorded[0] if count else 0.0)


def with_rate_scaled(workload: Workload, factor: float) -> Workload:
    """The same requests at ``factor`` times their rate: every arrival time divided by it."""
    if not 0.0 < factor < math.inf:
        raise wrong_value("workload", "rate scale", factor, "a number > 0")
    with np.errstate(over="ignore"):
        arrival_ms = workload.arrival_ms / factor
    if np.any(arrival_ms > MAX_TIME_MS):
        raise InputError(
            f"workload: arrivals beyond {MAX_TIME_MS:g} ms at a rate scale of {factor:g};"
            " expected a larger one"
        )
    return replace(workload, arrival_ms=arrival_ms)


def _check_positive(name: str, value: float) -> None:
    if not 0.0 < value < math.inf:
        raise wrong_value("arrivals", name, value, "a number > 0")
