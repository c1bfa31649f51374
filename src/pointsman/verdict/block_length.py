"""How long the blocks of a bootstrap should be, from the series itself."""

from __future__ import annotations

import math

import numpy as np

from pointsman.workload.workload import Floats


def block_requests(values: Floats) -> int:
    """How long blocks should be for a series, from how long its values resemble each other.

    At least the cube root of n, which is the order of the best length (Hall, Horowitz & Jing 1995,
    Biometrika 82(3)), at most n / 5, so that there are five blocks. NaN counts as the mean.
    Source: Politis & White (2004), Econometric Reviews 23(1), as corrected by Patton, Politis &
    White (2009), Econometric Reviews 28(4): the optimum for circular blocks, which moving ones
    share. Theirs looks for correlation over about sqrt(n) lags and ends at 3 sqrt(n), which is too
    short for queues near saturation; here n / 20 lags are looked at.
    """
    n = int(values.size)
    most = max(1, n // 5)
    least = min(round(math.cbrt(n)), most)
    present = values[~np.isnan(values)]
    mean = present.mean() if present.size else 0.0
    furthest = max(math.ceil(math.sqrt(n)), n // 20) + _quiet_lags(n)
    covariances = _autocovariances(np.nan_to_num(values - mean), min(n - 1, 2 * furthest))
    if covariances[0] <= 0.0:
        return least
    lags = np.arange(covariances.size)
    reach = 2 * min(_last_correlated_lag(covariances, n), furthest)
    # A flat top: 1 up to half of the reach, then down to 0; lags of both signs.
    weights = np.clip(2.0 * (1.0 - lags / reach), 0.0, 1.0)
    weighted = np.where(lags == 0, 1.0, 2.0 * weights) * covariances
    spectrum, slope = float(weighted.sum()), float((lags * weighted).sum())
    if spectrum <= 0.0:
        return least
    optimum = math.cbrt(1.5 * n * (slope / spectrum) ** 2)
    return max(least, min(math.ceil(optimum), most))


def _autocovariances(deviations: Floats, furthest: int) -> Floats:
    """For lags 0 to the furthest, by the transform of the series padded with zeros."""
    n = deviations.size
    spectrum = np.abs(np.fft.rfft(deviations, 2 * n)) ** 2
    return np.asarray(np.fft.irfft(spectrum, 2 * n)[: furthest + 1] / n)


def _quiet_lags(n: int) -> int:
    """How many lags without correlation in a row end it."""
    return max(5, math.ceil(math.sqrt(math.log10(n))))


def _last_correlated_lag(covariances: Floats, n: int) -> int:
    """The last lag (at least 1) before a row of quiet ones; the last of all without such a row."""
    quiet = np.abs(covariances[1:] / covariances[0]) < 2.0 * math.sqrt(math.log10(n) / n)
    needed = _quiet_lags(n)
    in_row = np.convolve(quiet, np.ones(needed, dtype=np.int64), mode="valid")
    rows = np.flatnonzero(in_row == needed) if quiet.size >= needed else in_row[:0]
    return max(1, int(rows[0]) if rows.size else quiet.size)
