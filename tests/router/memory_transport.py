"""A client's connection without a socket: bytes in, bytes out, and what became of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from pointsman.router.answers import report
from pointsman.router.client import ClientConnection
from pointsman.router.edge import Edge, EdgeLimits
from pointsman.router.messages import ClientRequest

TURNS = 48  # of the event loop; more than all that can follow from one read
LONG_S = 1e6


class MemoryTransport(asyncio.Transport):
    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.written = bytearray()
        self.is_paused = False
        self.has_ended = False
        self._protocol = protocol
        self._closes = False

    def write(self, data) -> None:
        assert not self.has_ended
        self.written += data

    def is_closing(self) -> bool:
        return self._closes

    def close(self) -> None:
        if not self._closes:
            self._closes = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.has_ended = True


@dataclass
class Seen:
    """What a connection made of some bytes; ``is_closed``: after its time was up, if not before."""

    requests: list[ClientRequest] = field(default_factory=list)
    written: bytes = b""
    is_closed: bool = False
    complaints: list[str] = field(default_factory=list)


async def seen_in(reads: list[bytes]) -> Seen:
    """Give the reads to a new connection; every request is answered with a 200 at once."""
    seen = Seen()

    async def serve(request: ClientRequest, client: ClientConnection) -> None:
        seen.requests.append(request)
        client.answer(request, report({}))

    edge = Edge(EdgeLimits(), None, seen.complaints.append)
    connection = ClientConnection(serve, edge)
    transport = MemoryTransport(connection)
    connection.connection_made(transport)
    for read in reads:
        await _turn()
        if transport.is_closing():
            break
        assert not transport.is_paused
        connection.data_received(read)
    await _turn()
    for look in range(6):  # a refusal, its lingering, and the two looks that each of them takes
        connection.check_deadline(look * LONG_S)
        await _turn()
    seen.is_closed = transport.is_closing() and not edge.connections
    seen.written = bytes(transport.written)
    return seen


async def _turn() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)
