"""The noise within one recorded trace: resampled in blocks, for requests near in time are alike.

Requests that wait in one queue wait together. Resampled one by one they would look independent, and
intervals come out too narrow; blocks of successive requests keep what holds them together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pointsman.core.errors import InputError, wrong_value
from pointsman.core.percentiles import nearest_rank
from pointsman.verdict.block_length import block_requests
from pointsman.verdict.student import central_t
from pointsman.verdict.uncertainty import Interval, check_level
from pointsman.workload.streams import stream
from pointsman.workload.workload import Floats

# From columns, whose last axis is requests, to one figure for each place on the axes before it.
Figure = Callable[[Floats], Floats]

_BATCH_VALUES = 1 << 17  # resampled at a time: 1 MB, which the caches of a core hold


@dataclass(frozen=True, slots=True)
class Resampling:
    """How often, in blocks of how many requests (None: ``block_requests`` decides), what level."""

    resamples: int = 1000
    block_requests: int | None = None
    level: float = 0.95


def mean_of(values: Floats) -> Floats:
    """The mean of what is there; of a column of booleans, the fraction that is true."""
    sums = np.asarray(values.sum(axis=-1))
    if not np.isnan(sums).any():
        return np.asarray(sums / values.shape[-1])
    present = ~np.isnan(values)
    with np.errstate(invalid="ignore"):  # nothing is there: the mean is absent
        return np.asarray(np.where(present, values, 0.0).sum(axis=-1) / present.sum(axis=-1))


def percentile_of(quantile: float) -> Figure:
    """The figure that is a percentile by nearest rank of what is there."""

    def percentile(values: Floats) -> Floats:
        absent = np.count_nonzero(np.isnan(values), axis=-1, keepdims=True)
        present = values.shape[-1] - absent
        ranks = np.maximum(np.ceil(quantile * present).astype(np.int64) - 1, 0)
        places = np.unique(ranks)
        # NaN stands last in either; with no value absent one place is enough of an order.
        ordered = np.partition(values, places, axis=-1) if places.size == 1 else np.sort(values)
        return np.asarray(np.take_along_axis(ordered, ranks, axis=-1)[..., 0])

    return percentile


def block_bootstrap(
    values_a: ArrayLike,
    values_b: ArrayLike,
    figure: Figure,
    seed: int,
    resampling: Resampling | None = None,
) -> Interval:
    """The difference of a figure between two runs of one trace, and its percentile interval.

    The values are a request each, in order of arrival, the same requests for A and B; NaN is
    absent. A figure of several columns gets them stacked, requests on the last axis. Overlapping
    blocks are drawn with replacement, the same ones for A and B, and cut to the trace's length.
    A function of its arguments. Raises InputError where shapes differ or have fewer than two
    requests, and where the figure is absent in a resample.
    Sources: moving blocks, Kuensch (1989), Annals of Statistics 17(3); percentile interval, Efron
    (1979), Annals of Statistics 7(1).
    """
    a, b = _columns(values_a, values_b)
    return _percentile_interval((a, b), figure, seed, resampling or Resampling())


def own_bootstrap(
    values: ArrayLike, figure: Figure, seed: int, resampling: Resampling | None = None
) -> Interval:
    """A figure of one run by itself, and its interval; all else as ``block_bootstrap``."""
    own, _ = _columns(values, values)
    return _percentile_interval((own,), figure, seed, resampling or Resampling())


def _percentile_interval(
    runs: tuple[Floats, ...], figure: Figure, seed: int, how: Resampling
) -> Interval:
    """Of the figure of one run, or of the difference of two."""
    check_level(how.level)
    n = runs[0].shape[-1]
    length = _block_requests(_difference(runs), how)
    of_runs = [figure(run) for run in runs]
    blocks = _drawn_blocks(stream(seed, "bootstrap"), n, length, how.resamples)
    found = np.concatenate(
        [_difference([figure(run.take(rows, axis=-1)) for run in runs]) for rows in blocks]
    )
    whole = float(_difference(of_runs))
    if np.isnan(whole) or np.isnan(found).any():
        raise InputError(
            "bootstrap: the figure is absent in a resample, because too few requests have a value;"
            " expected more of them"
        )
    found.sort()
    low = nearest_rank(found, (1.0 - how.level) / 2.0)
    high = nearest_rank(found, (1.0 + how.level) / 2.0)
    return Interval(
        whole,
        *_expanded(low, high, how.level, n / length),
        level=how.level,
        n=n,
        magnitude=sum(abs(float(of)) for of in of_runs),
    )


def _difference(runs: Sequence[Floats]) -> Floats:
    return runs[0] if len(runs) == 1 else runs[0] - runs[1]


def _block_requests(values: Floats, how: Resampling) -> int:
    n = values.shape[-1]
    if how.resamples < 1:
        raise wrong_value("bootstrap", "resamples", how.resamples, "an integer >= 1")
    if how.block_requests is None:
        return max(block_requests(column) for column in values.reshape(-1, n))
    if not 1 <= how.block_requests <= n // 2:
        raise wrong_value(
            "bootstrap", "block_requests", how.block_requests, f"1..{n // 2}: two blocks at least"
        )
    return how.block_requests


def _expanded(low: float, high: float, level: float, blocks: float) -> tuple[float, float]:
    """Widen a percentile interval by what it lacks with few blocks.

    As a t interval is wider than a normal one, and for the variance over n that resampling has in
    place of n - 1. Source: Hesterberg (2015), The American Statistician 69(4), on the narrowness
    bias and the expanded percentile interval, with blocks in place of observations.
    """
    middle, half = (low + high) / 2.0, (high - low) / 2.0
    normal = NormalDist().inv_cdf((1.0 + level) / 2.0)
    half *= central_t(level, int(blocks) - 1) / normal * math.sqrt(blocks / (blocks - 1.0))
    return middle - half, middle + half


def _drawn_blocks(
    generator: np.random.Generator, n: int, length: int, resamples: int
) -> Iterator[NDArray[Any]]:
    """Rows of the requests of each resample, some resamples at a time."""
    blocks = -(-n // length)
    batch = max(1, _BATCH_VALUES // n)
    for first in range(0, resamples, batch):
        shape = (min(batch, resamples - first), blocks, 1)
        starts = generator.integers(0, n - length + 1, size=shape)
        yield (starts + np.arange(length)).reshape(shape[0], -1)[:, :n]


def _columns(values_a: ArrayLike, values_b: ArrayLike) -> tuple[Floats, Floats]:
    a, b = np.asarray(values_a, dtype=np.float64), np.asarray(values_b, dtype=np.float64)
    if a.ndim == 0 or a.shape[-1] < 2 or a.shape != b.shape:
        raise InputError(
            f"bootstrap: A has the shape {a.shape}, B {b.shape}; expected the same requests in"
            " both, at least two"
        )
    return a, b
