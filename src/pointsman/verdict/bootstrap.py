"""The noise within one recorded trace: resampled in blocks, for requests near in time are alike.

Requests that wait in one queue wait together. Resampled one by one they would look independent, and
intervals come out too narrow; blocks of successive requests keep what holds them together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pointsman.core.errors import InputError, wrong_value
from pointsman.core.percentiles import nearest_rank
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
    A function of its arguments. Raises InputError where shapes differ or are empty, and where the
    figure is absent in a resample.
    Sources: moving blocks, Kuensch (1989), Annals of Statistics 17(3); percentile interval, Efron
    (1979), Annals of Statistics 7(1).
    """
    a, b = _columns(values_a, values_b)
    how = resampling or Resampling()
    check_level(how.level)
    length = _block_requests(a, b, how)
    of_a, of_b = float(figure(a)), float(figure(b))
    blocks = _drawn_blocks(stream(seed, "bootstrap"), a.shape[-1], length, how.resamples)
    differences = np.concatenate(
        [figure(a.take(rows, axis=-1)) - figure(b.take(rows, axis=-1)) for rows in blocks]
    )
    if np.isnan(of_a - of_b) or np.isnan(differences).any():
        raise InputError(
            "bootstrap: the figure is absent in a resample, because too few requests have a value;"
            " expected more of them"
        )
    differences.sort()
    return Interval(
        estimate=of_a - of_b,
        low=nearest_rank(differences, (1.0 - how.level) / 2.0),
        high=nearest_rank(differences, (1.0 + how.level) / 2.0),
        level=how.level,
        n=a.shape[-1],
        magnitude=abs(of_a) + abs(of_b),
    )


def block_requests(values: Floats) -> int:
    """How long blocks should be for a series, from how long its values resemble each other.

    At least the cube root of n, which is the order of the best length (Hall, Horowitz & Jing 1995,
    Biometrika 82(3)), at most 3 sqrt(n) and n / 3. NaN counts as the mean.
    Source: Politis & White (2004), Econometric Reviews 23(1), as corrected by Patton, Politis &
    White (2009), Econometric Reviews 28(4): the optimum for circular blocks, which moving ones
    share.
    """
    n = int(values.size)
    least = math.ceil(math.cbrt(n))
    most = max(1, math.floor(min(3.0 * math.sqrt(n), n / 3.0)))
    present = values[~np.isnan(values)]
    deviations = np.nan_to_num(values - (present.mean() if present.size else 0.0))
    covariances = _autocovariances(deviations)
    if covariances[0] <= 0.0:
        return min(least, most)
    lags = np.arange(covariances.size)
    reach = min(2 * _last_correlated_lag(covariances, n), covariances.size - 1)
    # A flat top: 1 up to half of the reach, then down to 0.
    weights = np.clip(2.0 * (1.0 - lags / max(1, reach)), 0.0, 1.0)
    weighted = np.where(lags == 0, 1.0, 2.0 * weights) * covariances
    spectrum, slope = float(weighted.sum()), float((lags * weighted).sum())
    if spectrum <= 0.0:
        return min(least, most)
    optimum = math.cbrt(1.5 * n * (slope / spectrum) ** 2)
    return int(min(max(least, math.ceil(optimum)), most))


def _autocovariances(deviations: Floats) -> Floats:
    """For lags from 0 to as far as the rule looks."""
    n = deviations.size
    furthest = min(n - 1, 2 * (math.ceil(math.sqrt(n)) + _quiet_lags(n)))
    products = [float(deviations[: n - lag] @ deviations[lag:]) for lag in range(furthest + 1)]
    return np.array(products) / n


def _quiet_lags(n: int) -> int:
    """How many lags without correlation in a row end it."""
    return max(5, math.ceil(math.sqrt(math.log10(n))))


def _last_correlated_lag(covariances: Floats, n: int) -> int:
    """The last lag before a row of quiet ones; the end of the search where there is no such row."""
    quiet = np.abs(covariances[1:] / covariances[0]) < 2.0 * math.sqrt(math.log10(n) / n)
    needed = _quiet_lags(n)
    furthest = math.ceil(math.sqrt(n)) + needed
    for lag in range(min(furthest, quiet.size)):
        if quiet[lag : lag + needed].all():
            return max(1, lag)
    return furthest


def _block_requests(a: Floats, b: Floats, how: Resampling) -> int:
    n = a.shape[-1]
    if how.resamples < 1:
        raise wrong_value("bootstrap", "resamples", how.resamples, "an integer >= 1")
    if how.block_requests is None:
        return max(block_requests(column) for column in (a - b).reshape(-1, n))
    if not 1 <= how.block_requests <= n:
        raise wrong_value(
            "bootstrap", "block_requests", how.block_requests, f"1..{n}, the trace's requests"
        )
    return how.block_requests


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
    if a.ndim == 0 or a.size == 0 or a.shape != b.shape:
        raise InputError(
            f"bootstrap: A has the shape {a.shape}, B {b.shape}; expected the same requests in"
            " both, at least one"
        )
    return a, b
