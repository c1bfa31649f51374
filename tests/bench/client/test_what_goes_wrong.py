"""What goes wrong with requests of a load, and what is odd about answers, on real sockets."""

from __future__ import annotations

import asyncio

import pytest

from pointsman.bench.client.arrivals import ClosedLoop
from pointsman.bench.client.figures import figures
from pointsman.bench.client.load import Limits, Load
from pointsman.metrics.goodput import Objectives
from tests.bench.client.loads import measured, requests, sent
from tests.bench.client.stand_in import (
    DONE,
    StandInEngine,
    answers_at_once,
    counts,
    delta,
    event,
    every,
    never_ends,
    run,
    text,
    usage,
)


async def is_out_of_order(asked, wire):
    await wire.answer(b"500 Internal Server Error", {"error": {"message": "no luck"}})


async def is_full(asked, wire):
    await wire.answer(b"503 Service Unavailable", {"error": {"message": "full"}},
                      b"retry-after: 1\r\n")  # fmt: skip


async def is_too_many(asked, wire):
    await wire.answer(b"429 Too Many Requests", {"error": {"message": "later"}})


async def is_down(asked, wire):
    await wire.answer(b"503 Service Unavailable", {"detail": "down"})


async def dies_before_a_token(asked, wire):
    await wire.begin()
    await wire.say(delta(role="assistant", content=""))
    wire.die()


async def dies_after_a_token(asked, wire):
    await wire.begin()
    await wire.say(text("a"))
    await asyncio.sleep(0.02)  # what was written goes before the reset
    wire.die()


async def says_an_error(asked, wire):
    await wire.begin()
    await wire.say(text("a"), event({"error": {"message": "the replica was lost"}}))
    await wire.end()


async def stops_without_a_word(asked, wire):
    await wire.begin()
    await wire.say(text("a"))
    await wire.end()


@pytest.mark.parametrize(
    ("script", "status", "error"),
    [
        (is_out_of_order, "error", "HTTP 500: no luck"),
        (is_down, "error", "HTTP 503: "),
        (is_full, "rejected", "HTTP 503: full"),
        (is_too_many, "rejected", "HTTP 429: later"),
        (dies_before_a_token, "error", "the connection was closed within the answer"),
        (dies_after_a_token, "truncated", "the connection was closed within the answer"),
        (says_an_error, "truncated", "the replica was lost"),
        (stops_without_a_word, "truncated", "the stream ended early: no [DONE]"),
    ],
)
def test_each_way_to_fail_has_a_status_and_a_reason(script, status, error):
    [row] = measured(script, requests(1))[0].rows
    assert row.status == status
    assert row.error.startswith(error)


def test_an_answer_that_does_not_end_is_a_timeout_and_is_aborted():
    async def main():
        gone = asyncio.Event()

        async def watches(asked, wire):
            await never_ends(asked, wire)
            gone.set()

        async with StandInEngine(watches) as engine:
            result = await sent(engine, Load(requests(1), limits=Limits(request_ms=60.0)))
            await asyncio.wait_for(gone.wait(), 10)
            return result

    [row] = run(main()).rows
    assert (row.status, row.error) == ("timeout", "no whole answer within 60 ms")
    assert row.first_token_ms is not None


def test_a_server_that_is_not_there_is_an_error_of_every_request():
    async def main():
        async with StandInEngine() as engine:
            pass
        return await sent(engine, Load(requests(3)))

    rows = run(main()).rows
    assert [row.status for row in rows] == ["error"] * 3
    assert rows[0].error.startswith("no connection: ")
    assert rows[0].sent_ms is None


def test_a_503_is_not_tried_again():
    script = every(4, is_down)
    result, engine = measured(script, requests(8))
    assert len(engine.asked) == 8
    assert [row.status for row in result.rows] == ["error", "ok", "ok", "ok"] * 2
    assert {row.sends for row in result.rows} == {1}


def test_a_connection_that_was_closed_while_idle_is_replaced_once_and_shown():
    """The stand-in closes a used connection upon its next request: nothing was answered."""

    async def main():
        seen: set[int] = set()

        async def closes_used_ones(asked, wire):
            if id(wire.writer) in seen:
                wire.die()
                return
            seen.add(id(wire.writer))
            kept.append(wire.writer)
            await answers_at_once(asked, wire)

        kept: list = []
        async with StandInEngine(closes_used_ones) as engine:
            return await sent(engine, Load(requests(2), ClosedLoop(1)))

    result = run(main())
    assert [(row.status, row.sends) for row in result.rows] == [("ok", 1), ("ok", 2)]
    assert figures(result).resent == 1


def test_half_of_errors_are_in_no_throughput_and_in_the_denominator_of_goodput():
    result, _ = measured(every(2, is_out_of_order), requests(20, gap_ms=2.0))
    found = figures(result, Objectives(e2el_ms=60_000.0))
    assert found.statuses["ok"] == found.statuses["error"] == 10
    assert sum(found.statuses.values()) == found.metrics.offered == 20
    seconds = found.metrics.window_ms / 1e3
    assert found.metrics.output_tokens_per_s == pytest.approx(10 * 4 / seconds)
    assert found.metrics.goodput.fraction == 0.5


def test_rejects_are_counted_apart_and_lower_the_goodput():
    async def script(asked, wire):
        await (is_too_many if asked.number % 10 < 3 else answers_at_once)(asked, wire)

    found = figures(measured(script, requests(20))[0], Objectives(ttft_ms=60_000.0))
    assert found.statuses["rejected"] == 6
    assert found.metrics.goodput.fraction == pytest.approx(0.7)
    assert found.metrics.finished == 14


def test_answers_that_end_early_are_told_by_finish_reason_and_by_length():
    async def stops(asked, wire):
        await wire.begin()
        await wire.say(text("a"), text("b", "stop"), usage(10, 2), DONE)
        await wire.end()

    found = figures(measured(every(2, stops), requests(4))[0])
    assert found.finish_reasons == {"stop": 2, "length": 2}
    assert found.output_lengths.different == 2
    assert any("answers: 2 of 4 requests differ in length: 16 tokens" in w for w in found.warnings)


def test_with_ignore_eos_every_answer_is_as_long_as_asked():
    result, engine = measured(answers_at_once, requests(6))
    assert all(asked.body["ignore_eos"] for asked in engine.asked)
    assert figures(result).finish_reasons == {"length": 6}


def test_coalesced_answers_are_counted_by_usage_and_flagged():
    async def at_once(asked, wire):
        await wire.begin()
        await wire.say(*(text("x") for _ in range(40)), usage(10, 40), DONE)
        await wire.end()

    result, _ = measured(at_once, requests(3))
    assert [row.output_tokens for row in result.rows] == [40] * 3
    assert all(row.is_coalesced for row in result.rows)
    assert any(remark.startswith("coalesced: of 3 of 3") for remark in result.disturbance.remarks)


def test_an_answer_without_usage_is_counted_by_the_servers_tokenizer():
    async def without_usage(asked, wire):
        await wire.begin()
        await wire.say(text(" one two"), text(" three", "stop"), DONE)
        await wire.end()

    result, _ = measured(without_usage, requests(2))
    assert [(row.output_tokens, row.tokens_from) for row in result.rows] == [(3, "tokenizer")] * 2


def test_gaps_between_chunks_and_between_tokens_are_apart():
    async def four_a_chunk(asked, wire):
        await wire.begin()
        for place in range(1, 4):
            await wire.say(text("x", usage=counts(10, 4 * place)), after_s=0.01)
        await wire.say(usage(10, 12), DONE)
        await wire.end()

    result, _ = measured(four_a_chunk, requests(2))
    assert result.gaps.tokens.tolist() == [4] * 4
    metrics = figures(result).metrics
    assert metrics.inter_chunk_ms.count == 4
    assert metrics.itl_ms.count == 16
    assert metrics.itl_ms.mean == pytest.approx(metrics.inter_chunk_ms.mean / 4)


def test_reasoning_is_the_first_token_and_text_the_first_word():
    async def reasons(asked, wire):
        await wire.begin()
        await wire.say(delta(role="assistant", content=""))
        await wire.say(delta(reasoning_content="hm"), after_s=0.01)
        await wire.say(delta("length", content="42"), usage(10, 2), DONE, after_s=0.01)
        await wire.end()

    [row] = measured(reasons, requests(1))[0].rows
    assert row.first_byte_ms < row.first_token_ms < row.first_text_ms
