"""Who asks for much and reads nothing gets no more than it can be sent."""

from __future__ import annotations

import asyncio

import pytest

from pointsman.router.answers import report
from pointsman.router.client import MAX_PIPELINED, ClientConnection
from pointsman.router.edge import Edge, EdgeLimits
from tests.router.memory_transport import MemoryTransport

HIGH_WATER = 1 << 16
ANSWER = report({"padding": "x" * 10_000})
ASKS = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"


class Unread(MemoryTransport):
    """Nothing is taken from it until ``read_all``; it says so as asyncio's transports do."""

    def write(self, data) -> None:
        super().write(data)
        if len(self.written) > HIGH_WATER:
            self._protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    def read_all(self) -> bytes:
        read, self.written = bytes(self.written), bytearray()
        self._protocol.resume_writing()
        return read


class World:
    """A connection whose requests are answered at once, among ``others`` that are served too."""

    def __init__(self, others: int) -> None:
        self.edge = Edge(EdgeLimits(), None, print)
        self.edge.outbox.served = others
        self.connection = ClientConnection(self.serve, self.edge)
        self.transport = Unread(self.connection)
        self.connection.connection_made(self.transport)

    async def serve(self, request, client) -> None:
        client.answer(request, ANSWER)


@pytest.mark.parametrize("others", [0, 2])
def test_answers_of_our_own_wait_for_a_client_that_does_not_read(others):
    """A thousand would be 10 MB; at most one more is written than the bound, twice over."""

    async def main():
        world = World(others)
        world.connection.data_received(ASKS * 1000)
        await asyncio.sleep(0)
        return len(world.transport.written), world.transport.is_paused

    written, is_paused = asyncio.run(main())
    assert written < 2 * HIGH_WATER + 2 * len(ANSWER.body)
    assert is_paused


@pytest.mark.parametrize("others", [0, 2])
def test_a_client_that_reads_on_gets_all_of_them(others):
    async def main():
        world, read = World(others), b""
        world.connection.data_received(ASKS * 100)
        while True:
            await asyncio.sleep(0)
            more = world.transport.read_all()
            read += more
            if not more and not world.transport.written:
                return read, world.transport.is_paused

    read, is_paused = asyncio.run(main())
    assert read.count(b"HTTP/1.1 200 OK") == 100 > MAX_PIPELINED
    assert not is_paused
