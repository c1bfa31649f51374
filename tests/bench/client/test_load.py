"""What becomes of a load: rows, instants, statuses, on real sockets to a stand-in."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest

from pointsman.bench.client.arrivals import ClosedLoop, OpenLoop
from pointsman.bench.client.figures import figures
from pointsman.bench.client.load import Limits, Load, Warmup
from pointsman.bench.client.progress import Watch, progress_line
from pointsman.bench.client.target import Target
from pointsman.core.errors import InputError
from tests.bench.client.loads import measured, requests, sent
from tests.bench.client.stand_in import (
    DONE,
    StandInEngine,
    answers_at_once,
    every,
    never_ends,
    run,
    takes,
    text,
    usage,
)


def test_a_request_says_what_it_wants():
    _, engine = measured(answers_at_once, requests(1, session=[0]), name="g1-r2")
    [asked] = engine.asked
    assert asked.headers["x-request-id"] == "g1-r2-0"
    assert asked.headers["x-session-id"] == "0"
    assert asked.body | {"prompt": ""} == {
        "model": "m",
        "prompt": "",
        "max_tokens": 4,
        "temperature": 0.0,
        "seed": 0,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "ignore_eos": True,
    }


def test_a_server_of_nobody_we_know_is_sent_nothing_but_openais_api():
    async def main():
        async with StandInEngine() as engine:
            await sent(engine, Load(requests(1)), dialect="openai", api="chat", api_key="sk-1")
            return engine.asked[0]

    asked = run(main())
    assert set(asked.body) == {
        "model", "messages", "max_tokens", "temperature", "seed", "stream", "stream_options",
    }  # fmt: skip
    assert asked.body["stream_options"] == {"include_usage": True}
    assert asked.headers["authorization"] == "bearer sk-1"  # the stand-in's lower case


def test_an_answer_is_a_row_with_ascending_instants():
    result, _ = measured(answers_at_once, requests(5, gap_ms=10.0))
    for number, row in enumerate(result.rows):
        assert (row.number, row.status, row.http_status) == (number, "ok", 200)
        assert row.intended_ms == 10.0 * number
        instants = [row.intended_ms, row.sent_ms, row.first_byte_ms, row.first_token_ms]
        instants += [row.last_token_ms, row.end_ms]
        assert instants == sorted(instants)
        assert (row.prompt_tokens, row.output_tokens, row.tokens_from) == (10, 4, "usage")
        assert (row.finish_reason, row.chunks, row.sends) == ("length", 4, 1)


def test_what_our_router_says_of_a_request_is_in_its_row():
    async def routed(asked, wire):
        await wire.begin(
            b"x-pointsman-replica: http://b\r\nx-pointsman-prefill: http://a\r\n"
            b"x-pointsman-reason: sticky_session\r\nx-pointsman-expected-wait-ms: 12.5\r\n"
            b"x-pointsman-attempts: 2\r\n"
        )
        await wire.say(text("a", "length"), usage(10, 1), DONE)
        await wire.end()

    [row] = measured(routed, requests(1))[0].rows
    assert (row.replica, row.prefill_replica) == ("http://b", "http://a")
    assert (row.reason, row.expected_wait_ms, row.attempts) == ("sticky_session", 12.5, 2)


# When requests are sent.


def test_a_cap_shows_in_latency_from_the_intended_arrival_and_not_from_the_send():
    """Cap 1, an answer takes 20 ms, one is due every 10 ms: the k-th is sent 10 k ms late."""
    result, engine = measured(takes(0.02), requests(12, gap_ms=10.0), OpenLoop(cap=1))
    assert engine.most_open == 1
    rows = result.rows
    for row in rows:
        assert row.sent_ms - row.intended_ms >= 9.0 * row.number
        assert row.first_token_ms - row.sent_ms >= 19.0
    metrics = figures(result).metrics
    delays = [row.sent_ms - row.intended_ms for row in rows]
    assert metrics.ttft_ms.mean - metrics.ttft_from_send_ms.mean == pytest.approx(np.mean(delays))
    assert metrics.client_delay_ms.mean == pytest.approx(np.mean(delays))
    assert any("waited in the client" in each for each in result.disturbance.remarks)


def test_five_hundred_requests_are_open_at_once():
    async def main():
        all_here = asyncio.Event()

        async def waits_for_all(asked, wire):
            if engine.open_now == 500:
                all_here.set()
            await all_here.wait()
            await answers_at_once(asked, wire)

        async with StandInEngine(waits_for_all) as engine:
            return await sent(engine, Load(requests(500))), engine

    result, engine = run(main())
    assert engine.most_open == 500
    assert {row.status for row in result.rows} == {"ok"}


def test_connections_are_used_again():
    _, engine = measured(answers_at_once, requests(20), ClosedLoop(concurrency=1))
    assert engine.connections == 1


def test_what_a_slow_loop_is_late_does_not_add_up():
    """A schedule of 10,000 arrivals in a second, and a loop that is held up: all are noticed, the
    intended instants are the schedule's to the last one."""
    count = 10_000
    workload = requests(count, gap_ms=0.1, output_tokens=[1] * count)

    async def main():
        async with StandInEngine() as engine:
            load = Load(workload, OpenLoop(cap=50), limits=Limits(load_ms=1_200.0))
            return await sent(engine, load)

    result = run(main())
    assert [row.number for row in result.rows] == list(range(count))
    assert [row.intended_ms for row in result.rows] == workload.arrival_ms.tolist()
    assert result.disturbance.requested_rps == pytest.approx(10_000.0)
    assert result.disturbance.schedule_delay_ms.count > 0


def test_a_closed_loop_keeps_as_many_in_flight_as_it_has_users():
    result, engine = measured(takes(0.005), requests(12), ClosedLoop(concurrency=3))
    assert engine.most_open == 3
    assert len(result.rows) == 12


def test_a_user_thinks_after_each_answer_and_sends_its_session_in_order():
    workload = requests(6, session=[0, 1, 0, 1, 0, 1])
    result, _ = measured(answers_at_once, workload, ClosedLoop(concurrency=2, think_ms=15.0))
    rows = {row.number: row for row in result.rows}
    for earlier, later in ((0, 2), (2, 4), (1, 3), (3, 5)):
        assert rows[later].intended_ms == pytest.approx(rows[earlier].end_ms + 15.0, abs=1e-3)


def test_a_user_without_a_session_goes_on_with_the_next_request():
    result, engine = measured(answers_at_once, requests(5), ClosedLoop(concurrency=1))
    assert [asked.number for asked in engine.asked] == [0, 1, 2, 3, 4]
    assert result.is_complete


def test_arrivals_stop_at_the_limit_and_answers_that_are_under_way_end():
    limits = Limits(load_ms=45.0)
    result, _ = measured(takes(0.03), requests(100, gap_ms=10.0), limits=limits)
    assert [row.number for row in result.rows] == [0, 1, 2, 3, 4]
    assert {row.status for row in result.rows} == {"ok"}
    assert result.is_complete


def test_what_was_due_and_not_sent_until_the_limit_is_offered_and_cancelled():
    limits = Limits(load_ms=100.0)
    how = OpenLoop(cap=1)
    result, engine = measured(takes(0.3), requests(5, gap_ms=1.0), how, limits=limits)
    assert [row.status for row in result.rows] == ["ok", *["cancelled"] * 4]
    assert result.rows[4].error == "not sent within 100 ms"
    assert result.rows[4].sends == 0
    assert len(engine.asked) == 1


# Warm-up.


def test_a_warm_up_is_not_drained_and_is_in_no_figure():
    async def main():
        measured_ones = asyncio.Event()

        async def script(asked, wire):
            if asked.number >= 3:
                measured_ones.set()
            else:
                await measured_ones.wait()  # the warm-up ends only once others came behind it
                await asyncio.sleep(0.2)
            await answers_at_once(asked, wire)

        async with StandInEngine(script) as engine:
            load = Load(requests(8, gap_ms=5.0), warmup=Warmup(requests=3))
            return await sent(engine, load)

    result = run(main())
    found = figures(result)
    assert [row.is_warmup for row in result.rows] == [True] * 3 + [False] * 5
    assert (found.metrics.offered, found.warmup_requests) == (5, 3)
    steady = [row.first_token_ms - row.intended_ms for row in result.rows[3:]]
    assert found.metrics.ttft_ms.p99 == pytest.approx(max(steady))
    assert found.metrics.ttft_ms.p99 < min(
        row.first_token_ms - row.intended_ms for row in result.rows[:3]
    )


def test_a_warm_up_is_counted_by_when_requests_are_due():
    result, _ = measured(answers_at_once, requests(6, gap_ms=10.0), warmup=Warmup(ms=25.0))
    assert [row.is_warmup for row in result.rows] == [True] * 3 + [False] * 3


def test_a_run_that_is_short_or_of_few_requests_is_said_to_be():
    result, _ = measured(answers_at_once, requests(5))
    warnings = " ".join(figures(result).warnings)
    assert "short: " in warnings
    assert "few: 5 requests ended well" in warnings


# While it runs.


def test_progress_is_told_while_it_runs_and_at_the_end():
    seen = []

    async def main():
        async with StandInEngine(takes(0.03)) as engine:
            watch = Watch(seen.append, every_ms=20.0)
            await sent(engine, Load(requests(10, gap_ms=10.0)), watch)

    run(main())
    assert len(seen) >= 2
    assert [each.ended for each in seen] == sorted(each.ended for each in seen)
    assert (seen[-1].sent, seen[-1].ended, seen[-1].errors) == (10, 10, 0)
    assert progress_line(seen[-1]).startswith("0 s, 10 of 10 sent, 10 ended, ")


def test_what_is_stopped_leaves_what_was_measured():
    async def main():
        async with StandInEngine(every(2, never_ends)) as engine:
            watch = Watch(lambda at: watch.stop() if at.ended >= 3 else None, every_ms=5.0)
            return await sent(engine, Load(requests(1_000, gap_ms=10.0)), watch)

    result = run(main())
    assert not result.is_complete
    statuses = {row.status for row in result.rows}
    assert statuses == {"ok", "cancelled"}
    assert len(result.rows) < result.planned
    assert any(each.startswith("incomplete: ") for each in figures(result).warnings)


# What is refused.


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Target("ftp://x", "m"), "'ftp://x' is no address; expected http://HOST:PORT"),
        (lambda: Target("http://x", "m", "vlm"), "did you mean vllm?"),
        (lambda: Target("http://x", "m", api="chats"), "did you mean chat?"),
        (lambda: Target("http://x", "m", api_key="a\nb"), "API key is not printable ASCII"),
        (lambda: OpenLoop(cap=0), "cap is 0; expected an integer >= 1"),
        (lambda: ClosedLoop(0), "concurrency is 0"),
        (lambda: ClosedLoop(1, think_ms=-1.0), "think_ms is -1.0"),
        (lambda: Limits(request_ms=0.0), "request_ms is 0.0; expected a time in ms > 0"),
        (lambda: Load(requests(0)), "requests is 0; expected at least one"),
        (lambda: Load(requests(1), name="two words"), "name is 'two words'"),
    ],
)
def test_what_makes_no_sense_is_refused(make, said):
    with pytest.raises(InputError) as refused:
        make()
    assert said in str(refused.value)


def test_a_base_url_may_end_in_v1_and_have_a_path():
    assert Target("http://h:1/base/v1/", "m").base == b"/base"
    assert Target("https://h", "m").port == 443
    assert json.dumps(Target("http://[::1]:8000", "m").head(b"/x").decode()).count("[::1]:8000")
