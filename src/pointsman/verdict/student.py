"""Quantiles of Student's t distribution, for whole degrees of freedom."""

from __future__ import annotations

import math

import numpy as np


def central_t(level: float, degrees: int) -> float:
    """The t for which |T| <= t has the probability ``level`` (0 < level < 1, degrees >= 1).

    Good to nine digits up to a level of 0.999999. The closed form of the probability is a finite
    sum in the angle theta = arctan(t / sqrt(degrees)) and grows with it, so halving the interval
    finds it.
    Source: Abramowitz & Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    low, high = 0.0, math.pi / 2.0
    while low < (middle := (low + high) / 2.0) < high:
        if _central_probability(middle, degrees) < level:
            low = middle
        else:
            high = middle
    return math.sqrt(degrees) * math.tan(high)


def _central_probability(theta: float, degrees: int) -> float:
    squared_cosine = math.cos(theta) ** 2
    odd = degrees % 2
    k = np.arange(1, (degrees - odd) // 2)
    factors = 2 * k / (2 * k + 1) if odd else (2 * k - 1) / (2 * k)
    series = 1.0 + float(np.cumprod(factors * squared_cosine).sum())
    if not odd:
        return math.sin(theta) * series
    if degrees == 1:
        return 2.0 * theta / math.pi
    return 2.0 / math.pi * (theta + math.sin(theta) * math.cos(theta) * series)
