"""From values to places on an axis, and where its ticks stand."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from pointsman.report.html.charts.chart import Axis

_WANTED_TICKS = 5
_MOST_TICKS = 7
_NICE = (1.0, 2.0, 5.0, 10.0)
_LEAST_OF_LARGEST = 1e-4  # smaller ones stand at the beginning
_ROUNDING = 1e-9  # of sums, in steps: it is no value beyond a tick
_LEAST_RATIO = 4.0  # of values that need a logarithm
# What lies beyond stands at the nearer end; smaller ones have no digits to share among ticks, and
# count as 0.
_LARGEST, _SMALLEST = 1e300, 1e-300


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis from ``low`` to ``high``, drawn from ``begin`` to ``end``."""

    low: float
    high: float
    begin: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """Where a value stands; what lies outside stands at the nearer end."""
        inside = min(max(value, self.low), self.high)
        if self.log:
            share = math.log(inside / self.low) / math.log(self.high / self.low)
        else:
            share = (inside - self.low) / (self.high - self.low)
        return self.begin + share * (self.end - self.begin)

    @property
    def ticks(self) -> list[float]:
        """Round values between the ends."""
        return _log_ticks(self.low, self.high) if self.log else _ticks(self.low, self.high)


def scale_for(axis: Axis, values: Iterable[float], begin: float, end: float) -> Scale:
    """An axis that holds all values, its own ends, and 0 where it is linear."""
    ends = [value for value in (axis.low, axis.high) if value is not None]
    finite = [value for value in (*values, *ends) if abs(value) < _LARGEST]
    known = [value if abs(value) > _SMALLEST else 0.0 for value in finite]
    if axis.log:
        positive = [value for value in known if value > 0.0]
        if positive and max(positive) >= _LEAST_RATIO * min(positive):
            apart = 2.0 if len(positive) < len(known) else 1.0  # of what stands at the beginning
            return Scale(*_log_ends(min(positive) / apart, max(positive)), begin, end, log=True)
    low, high = min([0.0, *known]), max([0.0, *known])
    if low == high:
        high = low + 1.0
    step = _step(low, high)
    steps = math.floor(low / step + _ROUNDING), math.ceil(high / step - _ROUNDING)
    return Scale(step * steps[0], step * steps[1], begin, end)


def _log_ends(low: float, high: float) -> tuple[float, float]:
    low = max(low, high * _LEAST_OF_LARGEST)
    ends = _nice_below(low), _nice_above(high)
    return ends if ends[0] < ends[1] else (ends[0] / 2.0, ends[1] * 2.0)


def _nice_below(value: float) -> float:
    decade = 10.0 ** math.floor(math.log10(value))
    return max(nice * decade for nice in _NICE if nice * decade <= value * (1 + 1e-12))


def _nice_above(value: float) -> float:
    decade = 10.0 ** math.floor(math.log10(value))
    return min(nice * decade for nice in _NICE if nice * decade >= value * (1 - 1e-12))


def _step(low: float, high: float) -> float:
    return _nice_above((high - low) / _WANTED_TICKS)


def _ticks(low: float, high: float) -> list[float]:
    step = _step(low, high)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [step * k for k in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each decade, or the decades alone where that would be many."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for nice in ((1.0, 2.0, 5.0), (1.0,)):
        ticks = [each * 10.0**k for k in decades for each in nice]
        inside = [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
        if len(inside) <= _MOST_TICKS:
            break
    return inside


def tick_text(value: float, percent: bool = False) -> str:
    """A tick in few characters: 20k, 1.5M, 25%."""
    if percent:
        return f"{100 * value:.10g}%"
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):.6g}{letter}"
    return f"{value + 0.0:.6g}"  # -0.0 + 0.0 is 0.0
