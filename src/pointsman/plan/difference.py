"""A candidate against the baseline on the same requests, with an interval on each difference.

Latencies are compared request by request as ratios, on a logarithmic scale: where a baseline is
overloaded its latencies grow with the length of the trace, and their mean says little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pointsman.plan.measure import Columns
from pointsman.plan.question import Question
from pointsman.verdict.bootstrap import Resampling, block_bootstrap, mean_of
from pointsman.verdict.uncertainty import HIGHER, Interval, paired_interval
from pointsman.workload.workload import Floats


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and where it may lie."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Difference:
    """``e2e_ratio``: the candidate's E2E over the baseline's, the geometric mean over requests;
    None where no request finished on both. ``goodput``: fraction of the candidate less the
    baseline's.
    """

    e2e_ratio: Estimate | None
    goodput: Estimate
    level: float
    n: int  # replications; of one trace its requests

    def bearable_error(self, sign: int) -> float:
        """The model's error from which on ``e2e_ratio`` does not show the baseline to be slower
        (HIGHER) or faster (LOWER); 0 if it never does.

        ``bearable_error_fraction`` of verdict/uncertainty.py, (A - B) / (A + B), of a ratio.
        """
        if self.e2e_ratio is None:
            return 0.0
        nearest = self.e2e_ratio.high if sign == HIGHER else self.e2e_ratio.low
        return max(0.0, sign * (1.0 - nearest) / (1.0 + nearest))


def difference_of(
    candidate: Sequence[Columns], baseline: Sequence[Columns], question: Question
) -> Difference:
    """Over replications with the same requests each; of one trace by resampling blocks of it."""
    finished = [
        ~(np.isnan(ours.log_e2e) | np.isnan(theirs.log_e2e))
        for ours, theirs in zip(candidate, baseline, strict=True)
    ]
    ratio = None
    if all(_enough(rows) for rows in finished):
        ratio = _of_logarithms(
            _interval(
                [ours.log_e2e[rows] for ours, rows in zip(candidate, finished, strict=True)],
                [theirs.log_e2e[rows] for theirs, rows in zip(baseline, finished, strict=True)],
                question,
            )
        )
    kept = _interval([ours.kept for ours in candidate], [each.kept for each in baseline], question)
    return Difference(
        e2e_ratio=ratio,
        goodput=Estimate(kept.estimate, kept.low, kept.high),
        level=question.level,
        n=kept.n,
    )


def _enough(rows: NDArray[np.bool_]) -> bool:
    return int(np.count_nonzero(rows)) >= 2


def _interval(a: list[Floats], b: list[Floats], question: Question) -> Interval:
    if len(a) > 1:
        means = [[float(column.mean()) for column in columns] for columns in (a, b)]
        return paired_interval(means[0], means[1], question.level)
    how = Resampling(resamples=question.resamples, level=question.level)
    return block_bootstrap(a[0], b[0], mean_of, question.seed, how)


def _of_logarithms(interval: Interval) -> Estimate:
    return Estimate(*map(_exp, (interval.estimate, interval.low, interval.high)))


def _exp(value: float) -> float:
    """Without overflow: beyond e^300 nobody tells ratios apart."""
    return math.exp(max(-300.0, min(300.0, value)))
