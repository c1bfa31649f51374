"""Gaps between tokens in a histogram."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.compiled import kernel
from pointsman.metrics.intertoken import (
    GAP_BINS,
    LONGEST_MS,
    SHORTEST_MS,
    GapHistogram,
    bin_middle_ms,
    gap_bin,
    gap_bins,
)
from pointsman.metrics.latency import Spread

gaps = st.floats(SHORTEST_MS, LONGEST_MS, exclude_max=True)


@kernel("int64(float64)")
def bin_in_a_kernel(gap_ms):
    return gap_bin(gap_ms)


@pytest.mark.parametrize(
    ("gap_ms", "expected"),
    [
        (0.0, 0),
        (0.00999, 0),
        (0.01, 1),
        (0.010099, 1),  # below 0.01 x 1.01
        (0.010101, 2),
        (10.0, 1 + 694),  # ln 1000 / ln 1.01 = 694.2
        (9.99e6, GAP_BINS - 2),
        (1e7, GAP_BINS - 1),
        (math.inf, GAP_BINS - 1),
    ],
)
def test_a_gap_has_its_bin_in_python_in_a_kernel_and_in_a_column(gap_ms, expected):
    assert gap_bin(gap_ms) == expected
    assert bin_in_a_kernel(gap_ms) == expected
    assert gap_bins(np.array([gap_ms])).tolist() == [expected]


@given(gaps)
def test_a_bins_middle_is_within_half_a_percent_of_all_in_it(gap_ms):
    assert bin_middle_ms(gap_bin(gap_ms)) == pytest.approx(gap_ms, rel=0.005)


def test_nine_decades_take_2083_bins_and_one_at_each_end():
    """ln 1e9 / ln 1.01 = 2082.7."""
    assert GAP_BINS == 2083 + 2


def test_a_chunk_of_k_tokens_after_a_gap_counts_as_k_gaps_of_a_kth():
    chunks = GapHistogram.of(np.array([40.0, 10.0]), np.array([4, 1]))
    tokens = GapHistogram.of(np.array([10.0] * 5))
    assert chunks.counts.tolist() == tokens.counts.tolist()
    assert (chunks.count, chunks.mean_ms) == (5, 10.0)


@given(st.lists(gaps, min_size=1, max_size=50), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_percentiles_are_by_nearest_rank_to_half_a_percent(values, quantile):
    rank = math.ceil(quantile * len(values))
    histogram = GapHistogram.of(np.array(values))
    assert histogram.percentile_ms(quantile) == pytest.approx(sorted(values)[rank - 1], rel=0.005)


def test_the_mean_is_exact_where_bins_are_not():
    assert GapHistogram.of(np.array([10.0, 10.05, 20.05])).mean_ms == pytest.approx(40.1 / 3, 1e-15)


def test_two_histograms_merge_to_that_of_all_gaps():
    one, other = np.array([1.0, 2.0]), np.array([2.0, 300.0])
    merged = GapHistogram.of(one).merged(GapHistogram.of(other))
    both = GapHistogram.of(np.concatenate([one, other]))
    assert merged.counts.tolist() == both.counts.tolist()
    assert merged.total_ms == both.total_ms == 305.0


def test_no_gaps_have_no_figures():
    assert GapHistogram.of(np.array([])).spread() == Spread()


def test_gaps_outside_the_bins_are_said_to_lie_at_their_ends():
    spread = GapHistogram.of(np.array([0.0, 1e9])).spread()
    assert (spread.p50, spread.worst) == (SHORTEST_MS / 2, LONGEST_MS)
    assert spread.mean == 5e8
