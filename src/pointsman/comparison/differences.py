"""How one run's figures differ from another's, and whether the trace can tell.

Every policy saw the same requests, and every figure of every pair is taken from the same
resamples of the same blocks of them (``verdict/bootstrap.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pointsman.core.errors import InputError
from pointsman.metrics.goodput import Objectives, met
from pointsman.metrics.latency import Answers
from pointsman.verdict.block_length import block_requests
from pointsman.verdict.bootstrap import (
    Figure,
    Resampling,
    block_bootstrap,
    mean_of,
    percentile_of,
)
from pointsman.verdict.uncertainty import (
    HIGHER,
    LOWER,
    Interval,
    bearable_error_fraction,
)
from pointsman.workload.workload import Floats

BETTER, WORSE, NOT_TOLD = "better", "worse", "not told apart"

# Two values make a difference, four two blocks of two.
LEAST_REQUESTS = 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is compared of a run, a row a request; ``met`` is None without objectives."""

    met: Floats | None  # 1 for a request that met all objectives, else 0
    ttft_ms: Floats  # NaN, as below, for a request that did not finish
    e2e_ms: Floats


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure: its name, which of an outcome's columns it is of, and which way is better."""

    name: str
    column: str
    figure: Figure
    better: int


GOODPUT = Compared("goodput_fraction", "met", mean_of, HIGHER)
P95_TTFT = Compared("p95_ttft_ms", "ttft_ms", percentile_of(0.95), LOWER)
MEAN_TTFT = Compared("mean_ttft_ms", "ttft_ms", mean_of, LOWER)
MEAN_E2E = Compared("mean_e2e_ms", "e2e_ms", mean_of, LOWER)
COMPARED = (GOODPUT, P95_TTFT, MEAN_TTFT, MEAN_E2E)


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure of a run less that of the one it is held against.

    ``interval`` is None where too few requests have the figure.
    """

    figure: str
    better: int  # HIGHER or LOWER: the sign that is a gain
    interval: Interval | None

    @property
    def verdict(self) -> str:
        """What the interval leaves standing of the difference: BETTER, WORSE or NOT_TOLD."""
        if self.interval is None or self.interval.sign == 0:
            return NOT_TOLD
        return BETTER if self.interval.sign == self.better else WORSE

    @property
    def bearable_error_fraction(self) -> float:
        """The model's own error from which on the verdict does not stand; 0 where it never does."""
        if self.interval is None or self.interval.sign == 0:
            return 0.0
        return bearable_error_fraction(self.interval, self.interval.sign)


def outcome_of(answers: Answers, objectives: Objectives | None) -> Outcome:
    """The columns that are compared."""
    kept = None if objectives is None else met(answers, objectives).astype(np.float64)
    return Outcome(kept, answers.ttft_ms, answers.e2e_ms)


def differences(
    outcomes: Sequence[Outcome], against: Outcome, seed: int
) -> list[tuple[Difference, ...]]:
    """Each outcome less ``against``, in the figures that there are; a row an outcome.

    Blocks are as long as the pair and figure needs that needs them longest, and the same for all.
    """
    if len(against.ttft_ms) < LEAST_REQUESTS:
        how = None
    else:
        lengths = [block_requests(a - b) for one in outcomes for a, b in _pairs(one, against)]
        how = Resampling(block_requests=min(max(lengths), len(against.ttft_ms) // 2))
    return [
        tuple(
            Difference(each.name, each.better, _interval(each, one, against, (seed, how)))
            for each in COMPARED
            if getattr(one, each.column) is not None
        )
        for one in outcomes
    ]


def _pairs(one: Outcome, against: Outcome) -> Iterator[tuple[Floats, Floats]]:
    for name in dict.fromkeys(each.column for each in COMPARED):
        a, b = getattr(one, name), getattr(against, name)
        if a is not None and b is not None:
            yield a, b


def _interval(
    each: Compared, one: Outcome, against: Outcome, draws: tuple[int, Resampling | None]
) -> Interval | None:
    seed, how = draws
    if one is against or how is None:
        return None
    a, b = getattr(one, each.column), getattr(against, each.column)
    try:
        return block_bootstrap(a, b, each.figure, seed, how)
    except InputError:  # a resample in which nobody has the figure
        return None
