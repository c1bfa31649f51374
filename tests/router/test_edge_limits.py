"""Clients that send too much, too slowly, or take too little."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from pointsman.core.errors import InputError
from pointsman.router.edge import EdgeLimits
from tests.router.fake_replicas import CHUNKED, chunk
from tests.router.raw_http import RawClient
from tests.router.routers import bench, chat, run, until

CHAT = "/v1/chat/completions"


def test_one_connection_too_many_is_a_503_and_the_others_go_on():
    async def main():
        async with bench(limits=EdgeLimits(max_connections=2)) as at, AsyncExitStack() as open_:
            second = await open_.enter_async_context(RawClient(at.port))
            await second.request("GET", "/x")
            third = await open_.enter_async_context(RawClient(at.port))
            refused = await third.response()
            served = (await at.client.request("GET", "/x")).status
            await second.__aexit__()
            await until(lambda: len(at.router.edge.connections) == 1)
            async with RawClient(at.port) as fourth:
                return refused, await third.reader.read(), served, await fourth.request("GET", "/x")

    refused, rest, served, again = run(main())
    assert (refused.status, refused.json["error"]["code"]) == (503, "too_many_connections")
    assert (rest, served, again.status) == (b"", 200, 200)


def test_one_header_too_many_is_a_431():
    async def main():
        async with bench(limits=EdgeLimits(max_headers=5)) as at:
            names = {f"x_{number}": "1" for number in range(3)}
            fits = await at.client.request("GET", "/x", b"", **names)  # host, length, three
            refused = await at.client.request("GET", "/x", b"", x="1", **names)
            return fits.status, refused.status, len(at.fake.requests)

    assert run(main()) == (200, 431, 1)


def test_heads_and_bodies_have_the_limits_that_were_set():
    async def main():
        limits = EdgeLimits(max_head_bytes=200, max_body_bytes=10)
        async with bench(limits=limits) as at:
            fits = (await at.client.request("GET", "/x", bytes(10), x="a" * 90)).status
            too_long = (await at.client.request("GET", "/x", b"", x="a" * 200)).status
            async with RawClient(at.port) as another:
                return fits, too_long, await another.request("GET", "/x", bytes(11))

    fits, too_long, too_large = run(main())
    assert (fits, too_long, too_large.status) == (200, 431, 413)
    assert too_large.json["error"]["message"] == "the body is over 10 bytes"


@pytest.mark.parametrize(
    ("limits", "begin"),
    [
        (EdgeLimits(head_timeout_s=0.2), b"GET /x HT"),
        (EdgeLimits(head_timeout_s=0.2), b"GET /x HTTP/1.1\r\nhost: t\r\nx: "),
        (EdgeLimits(body_timeout_s=0.2), b"PUT /x HTTP/1.1\r\ncontent-length: 9\r\n\r\nabc"),
        (
            EdgeLimits(body_timeout_s=0.2),
            b"PUT /x HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab",
        ),
    ],
)
def test_a_request_that_does_not_come_in_time_is_a_408(limits, begin):
    async def main():
        async with bench(limits=limits) as at:
            at.client.writer.write(begin)
            response = await at.client.response()
            return response, await at.client.reader.read(), len(at.fake.requests)

    response, rest, reached = run(main())
    assert (response.status, response.json["error"]["code"]) == (408, "request_timeout")
    assert (rest, reached) == (b"", 0)


def test_a_head_that_comes_in_drops_is_cut_however_often_they_come():
    async def main():
        async with bench(limits=EdgeLimits(head_timeout_s=0.2)) as at:
            at.client.writer.write(b"GET /x HTTP/1.1\r\nx: ")
            answer = asyncio.ensure_future(at.client.response())
            while not answer.done():
                at.client.writer.write(b"a")
                await asyncio.sleep(0.01)
            return answer.result().status

    assert run(main()) == 408


def test_a_body_that_goes_on_coming_is_waited_for():
    async def main():
        async with bench(limits=EdgeLimits(body_timeout_s=0.4)) as at:
            at.client.writer.write(b"PUT /x HTTP/1.1\r\ncontent-length: 12\r\n\r\n")
            for _ in range(12):
                await asyncio.sleep(0.1)
                at.client.writer.write(b"a")
            return (await at.client.response()).status

    assert run(main()) == 200


def test_an_idle_connection_is_closed_without_a_word():
    async def main():
        limits = EdgeLimits(idle_timeout_s=0.2)
        async with bench(limits=limits) as at, RawClient(at.port) as silent:
            await at.client.request("GET", "/x")
            rest = await at.client.reader.read(), await silent.reader.read()
            await until(lambda: not at.router.edge.connections)
            return rest

    assert run(main()) == (b"", b"")


def test_a_replica_that_takes_its_time_is_no_fault_of_the_client():
    async def main():
        async def script(request, wire):
            await asyncio.sleep(0.6)
            await wire.send(CHUNKED + chunk(b"data: [DONE]\n\n"))
            await asyncio.sleep(0.6)
            await wire.send(b"0\r\n\r\n")

        limits = EdgeLimits(
            head_timeout_s=0.2, body_timeout_s=0.2, idle_timeout_s=0.2, write_timeout_s=0.2
        )
        async with bench(script, limits=limits) as at:
            return (await at.client.post(CHAT, chat())).status

    assert run(main()) == 200


def test_a_client_that_takes_nothing_is_cut_and_its_request_with_it():
    async def script(request, wire):
        await wire.send(CHUNKED)
        while True:
            await wire.send(chunk(bytes(1 << 16)))

    async def main():
        limits = EdgeLimits(write_timeout_s=0.3)
        async with bench(script, limits=limits) as at, RawClient(at.port) as sleeper:
            sleeper.send("POST", CHAT, chat(stream=True))
            await sleeper.head()
            sleeper.writer.transport.pause_reading()
            await until(lambda: at.router.dispatcher.ledger.in_flight == 0)
            await until(lambda: at.fake.open_connections == 0)
            return len(at.router.edge.connections)

    assert run(main()) <= 1


def test_a_client_that_was_turned_away_and_stays_is_closed():
    async def main():
        async with bench() as at:
            at.client.writer.write(b"GARBAGE\r\n\r\n")
            await at.client.reader.read()
            await until(lambda: not at.router.edge.connections)

    run(main())


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_headers": 0}, "limits: max_headers is 0; expected an integer >= 1"),
        ({"head_timeout_s": 0.0}, "limits: head_timeout_s is 0.0; expected a number > 0"),
        ({"idle_timeout_s": float("nan")}, "idle_timeout_s is nan"),
    ],
)
def test_a_limit_that_is_none_is_refused(limits, message):
    with pytest.raises(InputError, match=message):
        EdgeLimits(**limits)
