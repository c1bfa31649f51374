"""Figures of a fleet that serves tokens, worked out by hand and by a second implementation."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman import InputError
from pointsman.metrics.goodput import Objectives
from pointsman.metrics.intertoken import GapHistogram
from pointsman.metrics.latency import FAILED, FINISHED, REJECTED, Spread
from pointsman.metrics.replicas import ReplicaFigures, ReplicaLoads, Skews
from pointsman.metrics.serving import serving_metrics
from tests.metrics.offered import FIVE, NAN, answers_of

LOADS = ReplicaLoads(
    busy_ms=np.array([100.0, 900.0]),
    kv_used_mean_fraction=np.array([0.25, NAN]),
    kv_used_peak_fraction=np.array([0.5, NAN]),
    iterations=np.array([7, -1]),
)


@pytest.fixture
def figures():
    return serving_metrics(FIVE, LOADS, Objectives(ttft_ms=100), gpus=4)


def test_every_status_is_counted_and_the_counts_add_up_to_what_was_offered(figures):
    assert figures.statuses == {"finished": 3, "failed": 1, "rejected": 1}
    assert sum(figures.statuses.values()) == figures.offered == 5


def test_throughput_counts_finished_requests_and_their_tokens_only(figures):
    """From 100 to 1100 ms: 3 requests of 5 + 1 + 11 tokens; the failed one's 3 do not count."""
    assert figures.makespan_ms == 1000.0
    assert figures.requests_per_s == 3.0
    assert figures.output_tokens_per_s == 17.0
    assert figures.output_tokens_per_s_per_gpu == 17.0 / 4


def test_latencies_are_of_finished_requests(figures):
    assert figures.ttft_ms == Spread(3, 110.0, 80.0, 200.0, 200.0, 200.0, 200.0)
    assert figures.queue_wait_ms.worst == 30.0
    assert figures.e2e_ms.p50 == 90.0


def test_an_answer_of_one_token_has_no_tpot_and_is_counted(figures):
    assert figures.tpot_ms == Spread(2, 20.0, 10.0, 30.0, 30.0, 30.0, 30.0)
    assert figures.tpot_absent == 1


def test_cached_tokens_and_preemptions(figures):
    """Finished: 0 + 48 + 32 of 100 + 60 + 40 tokens; preempted: 2 times C, once D."""
    assert figures.cached_token_fraction == 80 / 200
    assert figures.preemptions == 3


def test_what_an_engine_does_not_say_of_its_cache_is_left_out(figures):
    untold = replace(FIVE, cached_tokens=np.array([0, 48, -1, 0, 0]))
    assert serving_metrics(untold, LOADS, None, 1).cached_token_fraction == 48 / 160
    silent = replace(FIVE, cached_tokens=np.full(5, -1))
    assert serving_metrics(silent, LOADS, None, 1).cached_token_fraction is None


def test_what_each_replica_did(figures):
    assert figures.replicas == (
        ReplicaFigures(2, 100 + 5 + 60 + 1, 100.0, 7, 48 / 160, 0, 0.25, 0.5),
        ReplicaFigures(2, 40 + 11 + 50 + 3, 900.0, None, 32 / 40, 3, None, None),
    )


def test_skews_are_by_requests_tokens_and_busy_time(figures):
    """An even number of requests hides what tokens and busy time show."""
    assert figures.skews == Skews(requests=0.0, tokens=(166 - 104) / 135, busy=800.0 / 500.0)
    assert figures.utilisation == 1000.0 / (2 * 1000.0)


def test_a_replica_that_does_not_say_how_busy_it_was_leaves_skew_and_utilisation_open():
    unknown = replace(LOADS, busy_ms=np.array([100.0, NAN]))
    figures = serving_metrics(FIVE, unknown, None, 1)
    assert figures.skews.busy is None
    assert figures.utilisation is None


def test_goodput_is_there_only_with_objectives(figures):
    assert figures.goodput.fraction == 2 / 5
    assert serving_metrics(FIVE, LOADS, None, 1).goodput is None


def test_gaps_between_tokens_are_there_only_where_somebody_counted_them(figures):
    assert figures.itl_ms is None
    gaps = GapHistogram.of(np.array([5.0, 15.0]))
    assert serving_metrics(FIVE, LOADS, None, 1, gaps).itl_ms.mean == 10.0


def test_hand_offs_are_of_finished_requests_and_only_where_prefill_and_decode_are_apart(figures):
    assert figures.handoff is None
    split = replace(
        FIVE,
        handoff_ms=np.array([2.0, NAN, 4.0, 90.0, NAN]),
        handoff_bytes=np.array([1000, 0, 3000, 500, 0]),
        seat_wait_ms=np.array([1.0, NAN, 7.0, NAN, NAN]),
    )
    handoff = serving_metrics(split, LOADS, None, 1).handoff
    assert (handoff.transfer_ms.count, handoff.transfer_ms.mean) == (2, 3.0)
    assert (handoff.seat_wait_ms.worst, handoff.bytes) == (7.0, 4000)


def test_nothing_offered_has_no_figures_and_no_error():
    figures = serving_metrics(answers_of(), LOADS, Objectives(ttft_ms=1), 1)
    assert (figures.offered, figures.makespan_ms, figures.requests_per_s) == (0, 0.0, 0.0)
    assert figures.e2e_ms == Spread()
    assert figures.cached_token_fraction is None


def test_a_replica_without_loads_is_refused():
    one = ReplicaLoads(*(np.array([1.0]) for _ in range(4)))
    with pytest.raises(
        InputError, match=r"answers: replica is 1; expected 0\.\.0, as in the loads"
    ):
        serving_metrics(FIVE, one, None, 1)


def test_loads_of_unequal_length_and_fleets_without_gpus_are_refused():
    with pytest.raises(InputError, match=r"replica loads: shapes is .* columns of one length"):
        replace(LOADS, busy_ms=np.array([1.0]))
    with pytest.raises(InputError, match="gpus is 0; expected an integer >= 1"):
        serving_metrics(FIVE, LOADS, None, 0)


whole_ms = st.integers(0, 500)


@st.composite
def offered_rows(draw):
    """A request as a fleet may leave it; whole ms, so that sums are exact."""
    status = draw(st.sampled_from([FINISHED, FINISHED, FAILED, REJECTED]))
    arrival, *steps = (draw(whole_ms) for _ in range(4))
    times = [float(arrival + sum(steps[: k + 1])) for k in range(3)]
    if status == REJECTED:
        times = [NAN] * 3
    elif status == FAILED:
        times[1:] = draw(st.sampled_from([[NAN, NAN], [NAN, times[2]], times[1:]]))
    replica = -1 if status == REJECTED else draw(st.integers(0, 1))
    prompt = draw(st.integers(1, 90))
    counts = (draw(st.integers(1, 20)), draw(st.integers(0, prompt)), draw(st.integers(0, 3)))
    return (replica, status, float(arrival), *times, prompt, *counts)


@given(st.lists(offered_rows(), min_size=1, max_size=12))
def test_the_figures_are_those_of_a_plain_loop(rows):
    figures = serving_metrics(answers_of(*rows), LOADS, Objectives(ttft_ms=300, tpot_ms=20), 2)
    ttfts, tpots, tokens, kept = [], [], 0, 0
    for _, status, arrival, _, first, finish, _, output, _, _ in rows:
        if status != FINISHED:
            continue
        ttfts.append(first - arrival)
        tokens += output
        tpot = 0.0
        if output > 1:
            tpot = ((finish - arrival) - (first - arrival)) / (output - 1)
            tpots.append(tpot)
        kept += first - arrival <= 300 and tpot <= 20
    ends = [row[5] for row in rows if not math.isnan(row[5])]
    window = max(ends) - min(row[2] for row in rows) if ends else 0.0
    assert figures.offered == len(rows) == sum(figures.statuses.values())
    assert figures.makespan_ms == window
    assert figures.output_tokens_per_s == (tokens * 1000 / window if window else 0.0)
    assert (figures.goodput.met, figures.goodput.fraction) == (kept, kept / len(rows))
    assert figures.tpot_absent == len(ttfts) - len(tpots)
    for spread, values in ((figures.ttft_ms, ttfts), (figures.tpot_ms, tpots)):
        assert spread.count == len(values)
        if values:
            assert spread.p90 == sorted(values)[math.ceil(0.9 * len(values)) - 1]
            assert spread.mean == pytest.approx(sum(values) / len(values), rel=1e-12)
    assert sum(each.requests for each in figures.replicas) == sum(
        row[1] != REJECTED for row in rows
    )
