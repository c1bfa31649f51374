"""A thousand streams at once, on real sockets."""

from __future__ import annotations

import asyncio

from tests.router.fake_replicas import CHUNKED, DONE, PIECES, chunk
from tests.router.raw_http import RawClient
from tests.router.routers import bench, chat, run, until

CHAT = "/v1/chat/completions"
STREAMS = 1000


def test_a_thousand_streams_are_open_at_once_and_all_of_them_end_well():
    async def main():
        go_on = asyncio.Event()

        async def streams(request, wire):
            await wire.send(CHUNKED + chunk(PIECES[0]))
            await go_on.wait()
            await wire.send(b"".join(map(chunk, PIECES[1:])) + chunk(DONE) + b"0\r\n\r\n")

        async def one(port: int):
            async with RawClient(port) as client:
                return await client.post(CHAT, chat(stream=True))

        async with bench(streams, streams, policy="fewest_misses") as at:
            ledger = at.router.dispatcher.ledger
            asked = asyncio.gather(*(one(at.port) for _ in range(STREAMS)))
            await until(lambda: ledger.in_flight == STREAMS)
            shares = ledger.requests.tolist()
            go_on.set()
            answers = await asked
            return answers, shares, ledger.in_flight

    answers, shares, left = run(main())
    assert {answer.status for answer in answers} == {200}
    assert all(answer.is_whole and b"[DONE]" in answer.body for answer in answers)
    assert sum(shares) == STREAMS
    assert min(shares) > STREAMS / 4
    assert left == 0
