"""A group's metrics from the requests of its repeats, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from pointsman import InputError
from pointsman.evidence.measured import MeasuredRun, Told, Total, group_figures
from pointsman.metrics.latency import FAILED, FINISHED, Answers

ABSENT = {
    "queue_wait_ms": Told(source="the engine's log"),
    "kv_handoff_bytes": Told(reason="prefill and decode are not apart"),
    "kv_handoff_ms": Told(reason="prefill and decode are not apart"),
    "peak_memory_mb": Told(source="PSS of the engines"),
}


def answers(first_ms, finish_ms, tokens, failed=()):
    n = len(finish_ms)
    status = np.full(n, FINISHED, dtype=np.int8)
    status[list(failed)] = FAILED
    arrival = np.arange(n) * 10.0
    return Answers(
        replica=np.zeros(n, dtype=np.int64),
        status=status,
        arrival_ms=arrival,
        scheduled_ms=arrival + 5.0,
        first_token_ms=arrival + np.asarray(first_ms, dtype=float),
        finish_ms=arrival + np.asarray(finish_ms, dtype=float),
        prompt_tokens=np.full(n, 8),
        output_tokens=np.asarray(tokens),
        cached_tokens=np.full(n, -1),
        preemptions=np.zeros(n, dtype=np.int64),
    )


# Repeat 1: TTFT 20, 40; E2E 120, 60; tokens 11, 1. The last finish is at 120.
# Repeat 2: TTFT 30 and one that failed; E2E 80; tokens 6. The last finish is at 80.
RUNS = [
    MeasuredRun(answers([20, 40], [120, 60], [11, 1]), peak_memory_mb=100.0),
    MeasuredRun(answers([30, 5], [80, 6], [6, 2], failed=[1]), peak_memory_mb=120.0),
]


@pytest.fixture(scope="module")
def figures():
    return group_figures(RUNS, ABSENT)


@pytest.mark.parametrize(
    ("name", "whole", "first", "second"),
    [
        ("ttft_ms", 30.0, 30.0, 30.0),
        ("e2e_ms", 260 / 3, 90.0, 80.0),
        ("tpot_ms", 10.0, 10.0, 10.0),  # (120 - 20) / 10, (80 - 30) / 5; one token has none
        ("p95_ms", 120.0, 120.0, 80.0),
        ("throughput_tokens_per_s", 18 / 0.2, 12 / 0.12, 6 / 0.08),
        ("queue_wait_ms", 5.0, 5.0, 5.0),
        ("kv_handoff_ms", None, None, None),
        ("peak_memory_mb", 120.0, 100.0, 120.0),
        ("success_rate", 0.75, 1.0, 0.5),
    ],
)
def test_a_metric_is_of_all_requests_and_of_each_repeat(figures, name, whole, first, second):
    assert figures.metrics.of(name) == pytest.approx(whole)
    assert [each.of(name) for each in figures.repeats] == pytest.approx([first, second])
    assert figures.details[name].repeats == pytest.approx((first, second))


def test_a_percentile_is_of_all_requests_and_no_mean_of_percentiles(figures):
    assert figures.metrics.p95_ms != (120.0 + 80.0) / 2


def test_one_token_answers_have_no_time_a_token_and_are_not_counted(figures):
    assert figures.details["tpot_ms"].count == 2
    assert figures.details["ttft_ms"].count == 3
    assert figures.details["success_rate"].count == 4


def test_a_metric_that_is_absent_has_the_reason_and_no_source(figures):
    detail = figures.details["kv_handoff_bytes"]
    assert (detail.source, detail.reason) == (None, "prefill and decode are not apart")


def test_a_single_repeat_has_no_interval():
    alone = group_figures(RUNS[:1], ABSENT)
    assert alone.details["e2e_ms"].interval is None


def test_an_interval_is_around_the_whole(figures):
    bounds = figures.details["e2e_ms"].interval
    assert (bounds.low + bounds.high) / 2 == pytest.approx(260 / 3)
    assert bounds.n == 2


def test_where_a_metric_comes_from_has_to_be_said():
    with pytest.raises(InputError, match="peak_memory_mb has no source"):
        group_figures(RUNS, {**ABSENT, "peak_memory_mb": Told()})


# 3 requests that waited 60 ms together, then 1 that waited 100 ms.
TOTALS = (Total(60.0, 3), Total(100.0, 1))


def test_a_metric_of_totals_weighs_each_request_alike():
    told = {**ABSENT, "queue_wait_ms": Told(source="a histogram", totals=TOTALS)}
    figures = group_figures(RUNS, told)
    assert figures.metrics.queue_wait_ms == 160.0 / 4
    assert [each.queue_wait_ms for each in figures.repeats] == [20.0, 100.0]
    detail = figures.details["queue_wait_ms"]
    assert (detail.source, detail.count, detail.repeats) == ("a histogram", 4, (20.0, 100.0))


def test_totals_of_nothing_are_null_with_a_reason():
    told = {**ABSENT, "queue_wait_ms": Told(source="a histogram", totals=(Total(), Total()))}
    figures = group_figures(RUNS, told)
    assert figures.metrics.queue_wait_ms is None
    assert figures.details["queue_wait_ms"].reason == "no finished request has it"


@pytest.mark.parametrize(
    ("name", "totals", "wrong"),
    [
        ("queue_wait_ms", TOTALS[:1], "queue_wait_ms has 1 totals; expected 2, one each"),
        ("p99_ms", TOTALS, "p99_ms has totals; expected them of a mean of requests only"),
    ],
)
def test_totals_that_cannot_be_are_refused(name, totals, wrong):
    with pytest.raises(InputError, match=wrong):
        group_figures(RUNS, {**ABSENT, name: Told(source="a histogram", totals=totals)})


def test_no_repeat_is_no_result():
    with pytest.raises(InputError, match="no repeat"):
        group_figures([], ABSENT)


def test_what_no_request_has_is_null_with_that_reason():
    nothing = [MeasuredRun(answers([1], [2], [3], failed=[0]))]
    figures = group_figures(nothing, {**ABSENT, "peak_memory_mb": Told(reason="not measured")})
    assert figures.metrics.ttft_ms is None
    assert figures.details["ttft_ms"].reason == "no finished request has it"
    assert figures.metrics.success_rate == 0.0
