"""Gaps between the tokens of an answer, as a histogram: billions of gaps in some kilobytes.

Each gap counts once a token: a chunk that brings k tokens after a gap of g ms counts as k gaps of
g / k (sgl-project/sglang PR 12064 shows what counting chunks does under speculative decoding).

    bin 0                 gaps below SHORTEST_MS, down to 0
    bin 1 + k             from SHORTEST_MS x 1.01^k, included, to SHORTEST_MS x 1.01^(k + 1)
    bin GAP_BINS - 1      gaps of LONGEST_MS and more
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pointsman.core.compiled import inlined
from pointsman.metrics.latency import Spread
from pointsman.workload.workload import Floats

SHORTEST_MS = 0.01
LONGEST_MS = 1e7
BIN_WIDTH = 1.01  # the upper end of a bin over its lower end
_BINS_PER_E = 1.0 / math.log(BIN_WIDTH)
GAP_BINS = math.ceil(math.log(LONGEST_MS / SHORTEST_MS) * _BINS_PER_E) + 2

Counts = NDArray[np.int64]


@inlined
def gap_bin(gap_ms: float) -> int:
    """The bin of a gap >= 0. Kernels and Python can call it."""
    if gap_ms < SHORTEST_MS:
        return 0
    if gap_ms >= LONGEST_MS:
        return GAP_BINS - 1
    return 1 + int(math.log(gap_ms / SHORTEST_MS) * _BINS_PER_E)


@inlined
def gap_bin_end_ms(index: int) -> float:
    """Where the bin ends; of the last one infinity."""
    if index >= GAP_BINS - 1:
        return math.inf
    return SHORTEST_MS * math.exp(index / _BINS_PER_E)


def gap_bins(gaps_ms: Floats) -> Counts:
    """The bins of gaps >= 0; for a gap within rounding of two bins' border either is right."""
    inside = np.clip(gaps_ms, SHORTEST_MS, LONGEST_MS)
    bins = 1 + (np.log(inside / SHORTEST_MS) * _BINS_PER_E).astype(np.int64)
    bins[gaps_ms < SHORTEST_MS] = 0
    bins[gaps_ms >= LONGEST_MS] = GAP_BINS - 1
    return bins


def bin_middle_ms(index: int) -> float:
    """The geometric middle of a bin, within 0.5 % of all in it.

    That of bin 0 is half of SHORTEST_MS, that of the last one LONGEST_MS.
    """
    if index == 0:
        return SHORTEST_MS / 2.0
    if index == GAP_BINS - 1:
        return LONGEST_MS
    return SHORTEST_MS * float(BIN_WIDTH ** (index - 0.5))


@dataclass(frozen=True, slots=True, eq=False)
class GapHistogram:
    """How many tokens came after a gap of each bin, and all gaps added up."""

    counts: Counts  # GAP_BINS of them
    total_ms: float

    @classmethod
    def of(cls, gaps_ms: Floats, tokens: NDArray[Any] | None = None) -> GapHistogram:
        """Count gaps before chunks of so many tokens (at least 1; None: one each)."""
        if tokens is None:
            tokens = np.ones(gaps_ms.shape, dtype=np.int64)
        bins = gap_bins(gaps_ms / tokens)
        counts = np.zeros(GAP_BINS, dtype=np.int64)
        np.add.at(counts, bins, tokens)
        return cls(counts, float(gaps_ms.sum()))

    def merged(self, other: GapHistogram) -> GapHistogram:
        """The gaps of both."""
        return GapHistogram(self.counts + other.counts, self.total_ms + other.total_ms)

    @property
    def count(self) -> int:
        """How many tokens came after a gap."""
        return int(self.counts.sum())

    @property
    def mean_ms(self) -> float | None:
        """The exact mean over tokens; None where there are none."""
        return self.total_ms / self.count if self.count else None

    def percentile_ms(self, quantile: float) -> float | None:
        """The middle of the bin in which the nearest rank lies; None where there are no gaps."""
        if self.count == 0:
            return None
        rank = max(1, math.ceil(quantile * self.count))
        return bin_middle_ms(int(np.searchsorted(np.cumsum(self.counts), rank)))

    def spread(self) -> Spread:
        """The figures in the shape of all others; the worst is a bin's middle too."""
        return Spread(
            count=self.count,
            mean=self.mean_ms,
            p50=self.percentile_ms(0.50),
            p90=self.percentile_ms(0.90),
            p95=self.percentile_ms(0.95),
            p99=self.percentile_ms(0.99),
            worst=self.percentile_ms(1.0),
        )
