"""What a load added to engines' histograms, between two pages of their metrics."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from pointsman.bench.stages.histograms import HISTOGRAMS, Histogram
from pointsman.bench.stages.pages import Growth, growth, page_of, pages_of
from pointsman.core.errors import InputError
from pointsman.evidence.measured import Total
from tests.bench.engines.http_stand_in import serving
from tests.bench.stages.made import A, B

QUEUE = HISTOGRAMS["vllm"].queue_wait_ms
RECORDED = Path(__file__).parents[1] / "engines" / "vllm_0_32_cpu_metrics.txt"


def page(seconds: float, count: int, engine: str = "0") -> str:
    labels = f'{{engine="{engine}",model_name="m"}}'
    name = "vllm:request_queue_time_seconds"
    return (
        f"# TYPE {name} histogram\n"
        f'{name}_bucket{{engine="{engine}",le="+Inf"}} {count}\n'
        f"{name}_sum{labels} {seconds}\n{name}_count{labels} {float(count)}\n"
    )


def test_a_load_is_what_the_second_page_has_more_than_the_first():
    # 3 more requests, which waited 0.6 s together.
    before, after = {A: page_of(page(0.4, 2))}, {A: page_of(page(1.0, 5))}
    grown = growth(QUEUE, [A], before, after)
    assert grown.total.count == 3
    assert grown.total.mean == pytest.approx(200.0)


def test_several_engines_and_several_series_of_one_are_added_up():
    before = {A: page_of(page(0.0, 0) + page(1.0, 1, "1")), B: page_of(page(0.0, 0))}
    after = {A: page_of(page(0.5, 1) + page(2.0, 2, "1")), B: page_of(page(0.5, 2))}
    assert growth(QUEUE, [A, B], before, after) == Growth(Total(2000.0, 4))


def test_only_the_engines_that_are_asked_about_count():
    before = {url: page_of(page(0.0, 0)) for url in (A, B)}
    after = {A: page_of(page(0.25, 1)), B: page_of(page(9.0, 1))}
    assert growth(QUEUE, [A], before, after) == Growth(Total(250.0, 1))


def test_a_histogram_that_came_to_be_within_the_load_began_at_0():
    assert growth(QUEUE, [A], {A: page_of("")}, {A: page_of(page(0.5, 2))}).total.count == 2


def test_counts_that_went_back_are_unknown():
    grown = growth(QUEUE, [A], {A: page_of(page(2.0, 9))}, {A: page_of(page(0.5, 2))})
    assert grown.total is None
    assert grown.reason == f"{A}: {QUEUE.name} went back: it was restarted within the load"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("other 1\n", f"no page of metrics has {QUEUE.name}"),
        (page(0.5, 2).replace("0.5", "NaN"), f"no page of metrics has {QUEUE.name}"),
    ],
)
def test_what_no_page_has_is_unknown_and_not_0(text, reason):
    assert growth(QUEUE, [A], {A: page_of("")}, {A: page_of(text)}) == Growth(None, reason)


def test_a_page_that_was_not_read_is_unknown():
    reason = f"{A}: no page of metrics was read before and after the load"
    assert growth(QUEUE, [A], {}, {A: page_of(page(0.5, 2))}) == Growth(None, reason)


def test_a_page_that_is_none_is_an_error():
    with pytest.raises(InputError, match="metrics line 1"):
        page_of("<html>")


def test_a_recorded_page_has_queue_wait_and_prefill():
    """Of vllm_0_32_cpu_metrics.txt: 521 requests, 9.91 s and 41.93 s by its own lines."""
    totals = page_of(RECORDED.read_text()).totals
    assert totals["vllm:request_queue_time_seconds"] == Total(9.913880262007297, 521)
    assert totals["vllm:request_prefill_time_seconds"] == Total(41.929018306022044, 521)


def test_an_engines_page_is_fetched():
    server = serving("127.0.0.1", 0, {"GET /metrics": lambda _: (200, page(0.4, 2))})
    url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        assert pages_of([url])[url].totals[QUEUE.name] == Total(0.4, 2)
    finally:
        server.shutdown()
        server.server_close()


def test_a_page_that_does_not_come_says_why():
    nobody = "http://127.0.0.1:9"
    found = pages_of([nobody])[nobody]
    assert (found.totals, found.problem) == ({}, "no answer")
    grown = growth(Histogram("m", 1.0), [nobody], {nobody: found}, {nobody: found})
    assert grown.reason == f"{nobody}/metrics: no answer"
