"""Figures of requests that a client saw, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from pointsman.core.errors import InputError
from pointsman.metrics.goodput import Objectives
from pointsman.metrics.intertoken import GapHistogram
from pointsman.metrics.latency import FAILED, FINISHED, REJECTED
from pointsman.metrics.measured import DEFINITIONS, Seen, measured_metrics
from tests.metrics.offered import NAN, answers_of

# (replica, status, intended, -, first token, last token, prompt, output, cached, -), then sent,
# first text and the tokens of the first chunk.
ROWS = [
    ((0, FINISHED, 0.0, NAN, 50.0, 90.0, 100, 5, 0, 0), 10.0, 70.0, 1),  # TPOT 10
    ((0, FINISHED, 20.0, NAN, 100.0, 100.0, 60, 1, 48, 0), 20.0, 100.0, 1),  # no TPOT
    ((0, FINISHED, 30.0, NAN, 230.0, 530.0, 40, 11, 32, 0), 130.0, 230.0, 5),  # TPOT 30; 50
    ((0, FAILED, 40.0, NAN, 60.0, 1000.0, 50, 0, -1, 0), 40.0, 60.0, 1),
    ((-1, REJECTED, 50.0, NAN, NAN, 51.0, 70, 0, -1, 0), 50.0, NAN, -1),
]
SEEN = Seen(
    answers_of(*(row[0] for row in ROWS)),
    np.array([row[1] for row in ROWS]),
    np.array([row[2] for row in ROWS]),
    np.array([row[3] for row in ROWS]),
)
# Three chunks after gaps of 40 ms, four tokens each.
GAPS = np.full(3, 40.0)
METRICS = measured_metrics(
    SEEN, GapHistogram.of(GAPS), GapHistogram.of(GAPS, np.full(3, 4)), Objectives(ttft_ms=100.0)
)


def test_both_origins_are_there_and_differ_by_what_the_client_was_late():
    assert METRICS.ttft_ms.mean == pytest.approx((50.0 + 80.0 + 200.0) / 3)
    assert METRICS.ttft_from_send_ms.mean == pytest.approx((40.0 + 80.0 + 100.0) / 3)
    assert METRICS.e2e_ms.mean == pytest.approx((90.0 + 80.0 + 500.0) / 3)
    assert METRICS.e2e_from_send_ms.mean == pytest.approx((80.0 + 80.0 + 400.0) / 3)
    assert METRICS.client_delay_ms.mean == pytest.approx((10.0 + 0.0 + 100.0) / 3)


def test_tpot_has_no_first_token_in_it_and_weighs_requests_alike():
    assert METRICS.tpot_ms.mean == pytest.approx((10.0 + 30.0) / 2)
    assert METRICS.tpot_ms.count == 2


def test_one_token_has_no_tpot_and_is_counted():
    assert METRICS.tpot_absent == 1


def test_the_tokens_of_the_first_chunk_are_left_out_under_a_name_of_its_own():
    """(90 - 50) / (5 - 1) and (530 - 230) / (11 - 5)."""
    assert METRICS.tpot_after_first_chunk_ms.mean == pytest.approx((10.0 + 50.0) / 2)


def test_text_has_its_own_first_time():
    assert METRICS.ttfo_ms.mean == pytest.approx((70.0 + 80.0 + 200.0) / 3)


def test_gaps_a_chunk_and_a_token_are_apart():
    assert METRICS.inter_chunk_ms.mean == 40.0
    assert METRICS.itl_ms.mean == 10.0
    assert (METRICS.inter_chunk_ms.count, METRICS.itl_ms.count) == (3, 12)


def test_throughput_is_of_what_ended_well_over_all_of_the_window():
    """17 tokens from the first intended arrival, 0, to the last end, 1000."""
    assert METRICS.window_ms == 1000.0
    assert METRICS.output_tokens_per_s == pytest.approx(17.0)
    assert METRICS.requests_per_s == pytest.approx(3.0)


def test_goodput_is_out_of_all_that_were_offered():
    assert (METRICS.goodput.met, METRICS.goodput.fraction) == (2, 2 / 5)


def test_cached_tokens_are_of_those_whose_engine_says():
    assert METRICS.cached_token_fraction == pytest.approx(80 / 200)


def test_without_counts_of_chunks_there_is_no_itl():
    assert measured_metrics(SEEN, GapHistogram.of(GAPS), None, None).itl_ms is None


def test_every_figure_is_defined_with_its_weighting():
    for name in ("ttft_ms", "tpot_ms", "e2e_ms", "inter_chunk_ms", "itl_ms"):
        assert "-weighted" in DEFINITIONS[name]
    assert DEFINITIONS["percentile_method"] == "nearest_rank"


def test_nothing_seen_is_all_absent():
    empty = np.array([])
    none = Seen(answers_of(), empty, empty, empty)
    metrics = measured_metrics(none, GapHistogram.of(empty), None, None)
    assert (metrics.offered, metrics.window_ms, metrics.ttft_ms.mean) == (0, 0.0, None)


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(InputError, match="the shape of sent_ms"):
        Seen(SEEN.answers, np.array([1.0]), SEEN.first_text_ms, SEEN.first_chunk_tokens)
