"""How often something of a known probability may happen."""

from __future__ import annotations

from math import comb


def within(count: int, trials: int, probability: float, risk: float = 0.001) -> bool:
    """Whether neither so few nor so many are rarer than the risk, shared by both sides."""

    def mass(k: int) -> float:
        return comb(trials, k) * probability**k * (1 - probability) ** (trials - k)

    at_most = sum(mass(k) for k in range(count + 1))
    at_least = sum(mass(k) for k in range(count, trials + 1))
    return min(at_most, at_least) >= risk / 2
