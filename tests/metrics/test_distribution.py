"""A distribution in some hundred numbers."""

from __future__ import annotations

import numpy as np

from pointsman.metrics.distribution import QUANTILE_LEVELS, quantiles_of
from pointsman.metrics.latency import spread_of


def test_levels_are_every_percent_and_every_tenth_of_a_percent_at_the_end():
    assert len(QUANTILE_LEVELS) == 110
    assert QUANTILE_LEVELS[:3] == (0.0, 0.01, 0.02)
    assert QUANTILE_LEVELS[98:102] == (0.98, 0.99, 0.991, 0.992)
    assert QUANTILE_LEVELS[-1] == 1.0


def test_quantiles_of_a_thousand_values_are_values_by_nearest_rank():
    quantiles = quantiles_of(np.arange(1000.0, 0.0, -1.0))
    at = dict(zip(QUANTILE_LEVELS, quantiles, strict=True))
    assert (at[0.0], at[0.5], at[0.99], at[0.999], at[1.0]) == (1, 500, 990, 999, 1000)


def test_absent_values_are_not_counted():
    quantiles = quantiles_of(np.array([np.nan, 7.0, np.nan]))
    assert quantiles == (7.0,) * 110


def test_without_values_there_is_no_distribution():
    assert quantiles_of(np.array([np.nan])) is None


def test_the_percentiles_of_every_table_are_among_the_quantiles():
    values = np.random.default_rng(3).exponential(size=777)
    at = dict(zip(QUANTILE_LEVELS, quantiles_of(values), strict=True))
    spread = spread_of(values)
    named = (spread.p50, spread.p90, spread.p95, spread.p99, spread.worst)
    assert named == (at[0.5], at[0.9], at[0.95], at[0.99], at[1.0])
