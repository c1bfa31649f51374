"""Intervals from repeats of one run, for means and for percentiles alike.

Requests of one run wait together, so it is the run that counts as one observation. The estimate is
the figure of all repeats' requests together, and its noise is how far each repeat's own figure lies
from it. So no percentile is ever averaged, and a percentile gets an interval as a mean does.
Source: sectioning, Asmussen & Glynn, Stochastic Simulation (2007), III.5; of quantiles, Nakayama
(2014), ACM TOMACS 24(4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pointsman.verdict.student import central_t
from pointsman.verdict.uncertainty import Interval, check_level


@dataclass(frozen=True, slots=True)
class Sections:
    """A figure of all repeats together, and of each repeat by itself (one or more)."""

    overall: float
    repeats: tuple[float, ...]


def section_interval(figure: Sections, level: float = 0.95) -> Interval:
    """Where the figure may lie. One repeat says nothing about noise: its interval is infinite."""
    check_level(level)
    n = len(figure.repeats)
    half = _half(_variance(figure.overall, figure.repeats) / n, n - 1, level)
    low, high = figure.overall - half, figure.overall + half
    return Interval(figure.overall, low, high, level, n, abs(figure.overall))


def section_difference(a: Sections, b: Sections, level: float = 0.95) -> Interval:
    """Where A - B may lie: paired where both have as many repeats, for the k-th of either ran near
    in time; else each with its own noise and the degrees of freedom of the fewer repeats."""
    check_level(level)
    estimate = a.overall - b.overall
    fewest = min(len(a.repeats), len(b.repeats))
    if len(a.repeats) == len(b.repeats):
        pairs = zip(a.repeats, b.repeats, strict=True)
        variance = _variance(estimate, [x - y for x, y in pairs]) / fewest
    else:
        variance = sum(_variance(x.overall, x.repeats) / len(x.repeats) for x in (a, b))
    half = _half(variance, fewest - 1, level)
    magnitude = abs(a.overall) + abs(b.overall)
    return Interval(estimate, estimate - half, estimate + half, level, fewest, magnitude)


def _variance(middle: float, values: Sequence[float]) -> float:
    if len(values) < 2:
        return math.inf
    return math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1)


def _half(variance: float, degrees: int, level: float) -> float:
    return central_t(level, degrees) * math.sqrt(variance) if degrees > 0 else math.inf
