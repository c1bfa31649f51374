"""Fake replicas: small HTTP servers on loopback that do as their script says, and take notes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

PIECES = [b'data: {"choices":[{"text":"%d"}]}\n\n' % number for number in range(8)]
USAGE = (
    b'data: {"choices":[],"usage":{"prompt_tokens":31,"completion_tokens":8,'
    b'"prompt_tokens_details":{"cached_tokens":16}}}\n\n'
)
DONE = b"data: [DONE]\n\n"
STREAM = b"".join(PIECES) + USAGE + DONE

CHUNKED = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


def chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def sized(body: bytes, kind: bytes = b"application/json", status: bytes = b"200 OK") -> bytes:
    head = b"HTTP/1.1 %b\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n"
    return head % (status, kind, len(body)) + body


@dataclass
class FakeRequest:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Wire:
    """What a script acts on: one connection to the fake."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def die(self) -> None:
        """As a killed process does: no more bytes, no goodbye."""
        self.writer.transport.abort()


Script = Callable[[FakeRequest, Wire], Awaitable[None]]


async def answer_json(request: FakeRequest, wire: Wire) -> None:
    """A whole answer with usage, as engines give it."""
    usage = {
        "prompt_tokens": 31,
        "completion_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 16},
    }
    await wire.send(sized(json.dumps({"choices": [{"text": "ok"}], "usage": usage}).encode()))


async def answer_stream(request: FakeRequest, wire: Wire) -> None:
    """A whole stream."""
    await wire.send(CHUNKED)
    for piece in [*PIECES, USAGE, DONE]:
        await wire.send(chunk(piece))
    await wire.send(b"0\r\n\r\n")


async def never_answer(request: FakeRequest, wire: Wire) -> None:
    """Hold the request until the other side leaves."""
    await wire.reader.read(1)


def stream_then(pieces: int, end: Callable[[Wire], Awaitable[None]]) -> Script:
    """A stream that stops after some pieces, then whatever ``end`` does."""

    async def script(request: FakeRequest, wire: Wire) -> None:
        await wire.send(CHUNKED)
        for piece in PIECES[:pieces]:
            await wire.send(chunk(piece))
        await end(wire)

    return script


async def dies(wire: Wire) -> None:
    wire.die()


async def stalls(wire: Wire) -> None:
    await wire.reader.read(1)


async def is_well(request: FakeRequest, wire: Wire) -> None:
    await wire.send(sized(b"{}"))


@dataclass
class FakeReplica:
    """``requests`` and ``connections`` are without those that ask for its health."""

    script: Script = answer_json
    health: Script = is_well
    requests: list[FakeRequest] = field(default_factory=list)
    probes: int = 0
    connections: int = 0
    open_connections: int = 0
    port: int = 0

    async def __aenter__(self) -> FakeReplica:
        self._tasks: set[asyncio.Task] = set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._tasks.add(task)
        is_counted = False
        try:
            while not writer.is_closing():
                request = await _read_request(reader)
                if request.path.endswith("/health"):
                    self.probes += 1
                    await self.health(request, Wire(reader, writer))
                    continue
                if not is_counted:
                    is_counted = True
                    self.connections += 1
                    self.open_connections += 1
                self.requests.append(request)
                await self.script(request, Wire(reader, writer))
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.open_connections -= is_counted
            writer.transport.abort()
            self._tasks.discard(task)


async def _read_request(reader: asyncio.StreamReader) -> FakeRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ")
    pairs = [line.split(": ", 1) for line in head[1:] if line]
    assert len({name for name, _ in pairs}) == len(pairs), f"a header came twice: {pairs}"
    headers = dict(pairs)
    if headers.get("transfer-encoding") == "chunked":
        return FakeRequest(method, path, headers, await _read_chunks(reader))
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return FakeRequest(method, path, headers, body)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return body
