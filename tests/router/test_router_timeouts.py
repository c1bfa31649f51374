"""Replicas that are silent: while they are connected to, before their answer, and within it."""

import asyncio
import json
import socket
from contextlib import contextmanager

import pytest

from pointsman.dispatch.log_file import read_log
from pointsman.router.settings import Resilience, Timeouts
from tests.router.fake_replicas import (
    CHUNKED,
    DONE,
    PIECES,
    answer_json,
    answer_stream,
    chunk,
    never_answer,
    sized,
    stalls,
    stream_then,
)
from tests.router.raw_http import RawClient
from tests.router.routers import bench, chat, routing, run, until
from tests.router.test_router_health import RARE

CHAT = "/v1/chat/completions"
SHORT = 60.0


@contextmanager
def black_hole():
    """The URL of a listener that accepts nobody: beyond its backlog connects hang."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            for filler in fillers:
                filler.close()


def test_a_connect_that_hangs_is_given_up_within_its_limit():
    async def main():
        with black_hole() as url:
            limits = {"timeouts": Timeouts(connect_ms=SHORT), "probing": RARE}
            async with routing([url], **limits) as (router, port), RawClient(port) as client:
                response = await client.post("/v1/files", b"x")
                return response, router.membership[0].state

    response, state = run(main())
    assert response.status == 503
    assert ": takes no connection in 60 ms; start one of them" in response.json["error"]["message"]
    assert state == "unreachable"


def test_a_connect_that_hangs_is_a_504_where_others_are_there_and_there_are_no_retries():
    async def main():
        async with bench(answer_json, probing=RARE) as other:
            with black_hole() as url:
                urls = [url, other.fake.url]
                limits = {"timeouts": Timeouts(connect_ms=SHORT), "probing": RARE, "retries": 0}
                async with routing(urls, **limits) as (_, port), RawClient(port) as client:
                    first = await client.post(CHAT, chat())
                    return first, [(await client.post(CHAT, chat())).status for _ in range(4)]

    response, later = run(main())
    assert (response.status, response.json["error"]["code"]) == (504, "replica_unreachable")
    assert later == [200] * 4


@pytest.mark.parametrize("retries", [0, 1])
def test_an_answer_that_does_not_begin_is_a_504_is_aborted_and_is_not_generated_again(
    tmp_path, retries
):
    async def main():
        settings = {"timeouts": Timeouts(first_byte_ms=SHORT), "retries": retries}
        async with bench(never_answer, never_answer, **settings, log=tmp_path / "log") as at:
            response = await at.client.post(CHAT, chat())
            await until(lambda: at.fake.open_connections == 0)
            return response, at.router.dispatcher.ledger.in_flight, len(at.fakes[1].requests)

    response, left, elsewhere = run(main())
    assert (response.status, response.json["error"]["code"]) == (504, "replica_timeout")
    assert "sent no byte of an answer for 60 ms" in response.json["error"]["message"]
    assert (left, elsewhere) == (0, 0)
    outcome = read_log(tmp_path / "log").outcomes[0]
    assert (outcome.status, outcome.http_status, outcome.error) == ("error", 504, "replica_timeout")


def test_a_limit_on_a_kept_connection_is_no_reason_to_send_the_request_again():
    async def main():
        async with bench(answer_json, timeouts=Timeouts(first_byte_ms=SHORT)) as at:
            await at.client.post(CHAT, chat())
            at.fake.script = never_answer
            return (await at.client.post(CHAT, chat())).status, len(at.fake.requests)

    assert run(main()) == (504, 2)


def test_a_stream_that_stalls_ends_in_an_error_event_without_done(tmp_path):
    async def main():
        limits = Timeouts(first_byte_ms=1e6, idle_ms=SHORT)
        async with bench(stream_then(3, stalls), timeouts=limits, log=tmp_path / "log") as at:
            response = await at.client.post(CHAT, chat(stream=True))
            await until(lambda: at.fake.open_connections == 0)
            return response

    response = run(main())
    assert not response.is_whole
    assert DONE not in response.body
    *whole, last, _ = response.body.split(b"\n\n")
    assert len(whole) == 3
    assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "replica_timeout"
    assert read_log(tmp_path / "log").outcomes[0].status == "truncated"


def test_a_body_that_stalls_is_not_passed_off_as_whole():
    async def script(request, wire):
        await wire.send(sized(bytes(100))[:-60])
        await stalls(wire)

    async def main():
        async with bench(script, timeouts=Timeouts(idle_ms=SHORT)) as at:
            response = await at.client.post(CHAT, chat())
            return response.is_whole, len(response.body)

    assert run(main()) == (False, 40)


def test_a_long_stream_is_not_cut_off_as_long_as_bytes_come():
    """Eight pieces, 30 ms apart, are four times the limit between two of them."""

    async def slowly(request, wire):
        await wire.send(CHUNKED)
        for piece in [*PIECES, DONE]:
            await asyncio.sleep(0.03)
            await wire.send(chunk(piece))
        await wire.send(b"0\r\n\r\n")

    async def main():
        limits = Timeouts(first_byte_ms=60.0, idle_ms=60.0)
        async with bench(slowly, timeouts=limits) as at:
            return (await at.client.post(CHAT, chat(stream=True))).is_whole

    assert run(main())


def test_a_slow_client_is_not_taken_for_a_silent_replica():
    size = 16 << 20

    async def script(request, wire):
        await wire.send(sized(bytes(size)))

    async def main():
        async with bench(script, timeouts=Timeouts(idle_ms=SHORT)) as at:
            at.client.send("POST", CHAT, chat())
            await until(lambda: len(at.fake.requests) == 1)
            await asyncio.sleep(4 * SHORT / 1000)
            response = await at.client.response()
            return response.is_whole, len(response.body)

    assert run(main()) == (True, size)


def test_a_black_hole_affects_no_other_replica():
    async def main():
        async with bench(never_answer, answer_stream, policy="least_requests") as at:
            at.client.send("POST", CHAT, chat())
            await until(lambda: len(at.fake.requests) == 1)
            async with RawClient(at.port) as other:
                return [(await other.post(CHAT, chat())).status for _ in range(20)]

    assert run(main()) == [200] * 20


@pytest.mark.parametrize(
    ("limits", "sweep_s"),
    [
        (Timeouts(), 1.0),
        (Timeouts(connect_ms=400.0), 0.1),
        (Timeouts(idle_ms=200.0), 0.05),
        (Timeouts(first_byte_ms=0.001), 0.005),
    ],
)
def test_one_timer_looks_four_times_within_the_shortest_limit(limits, sweep_s):
    assert Resilience(timeouts=limits).sweep_s == sweep_s
