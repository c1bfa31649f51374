"""Is predicted A < B right? The question that a mean error does not answer.

A pair of groups counts where the intervals that were measured do not overlap, for there the truth
is known; it is right where the prediction has the two in the same order
(ai-dynamo/aiconfigurator#95 asks for it where only errors were published).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import msgspec


@dataclass(frozen=True, slots=True)
class Ranked:
    """One figure of one group; the interval is None where it was measured once."""

    group: str
    predicted: float
    low: float | None
    high: float | None


class WrongPair(msgspec.Struct, frozen=True):
    """Measured is ``lower`` < ``higher``; predicted is not."""

    lower: str
    higher: str


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """Of ``counted`` pairs so many were predicted in the ``right`` order.

    Left out: pairs whose intervals overlap, and those of a group without one.
    """

    right: int
    counted: int
    overlapping: int
    without_interval: int
    wrong: tuple[WrongPair, ...]

    @property
    def fraction(self) -> float | None:
        """None where no pair counts."""
        return self.right / self.counted if self.counted else None


def agreement(figures: Sequence[Ranked]) -> Agreement:
    """How many pairs of groups were predicted in the order in which they were measured."""
    found = [_verdict(a, b) for a, b in combinations(figures, 2)]
    wrong = [each for each in found if isinstance(each, WrongPair)]
    right = found.count("right")
    return Agreement(
        right=right,
        counted=right + len(wrong),
        overlapping=found.count("overlapping"),
        without_interval=found.count("without_interval"),
        wrong=tuple(wrong),
    )


def together(parts: Sequence[Agreement]) -> Agreement:
    """The counts of several figures, added up."""
    return Agreement(
        right=sum(part.right for part in parts),
        counted=sum(part.counted for part in parts),
        overlapping=sum(part.overlapping for part in parts),
        without_interval=sum(part.without_interval for part in parts),
        wrong=tuple(pair for part in parts for pair in part.wrong),
    )


Verdict = Literal["right", "overlapping", "without_interval"] | WrongPair


def _verdict(a: Ranked, b: Ranked) -> Verdict:
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return "without_interval"
    if a.high >= b.low and b.high >= a.low:
        return "overlapping"
    lower, higher = (a, b) if a.high < b.low else (b, a)
    if lower.predicted < higher.predicted:
        return "right"
    return WrongPair(lower.group, higher.group)
