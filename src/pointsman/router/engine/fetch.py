"""One GET of a small page from a replica, on a connection of its own.

It shares nothing with the connections that carry requests, so that a slow page holds up nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import httptools

from pointsman.core.errors import MachineError
from pointsman.router.messages import MAX_HEAD_BYTES, head_bytes
from pointsman.router.upstream import ReplicaAddress

_READ_BYTES = 64 << 10


class PageError(MachineError):
    """The page was not there, came too late, or is too large."""


@dataclass(frozen=True, slots=True)
class Limits:
    """From the first byte of the connect to the last one of the answer; of the body."""

    timeout_s: float = 2.0
    max_body_bytes: int = 2 << 20


@dataclass(frozen=True, slots=True)
class Page:
    """A whole answer."""

    status: int
    body: bytes


async def fetch(address: ReplicaAddress, path: str, limits: Limits) -> Page:
    """Get the page, whatever its status. Raises PageError."""
    where = f"{address.url}{path}"
    try:
        async with asyncio.timeout(limits.timeout_s):
            return await _exchange(address, path, limits)
    except TimeoutError:
        raise PageError(f"{where}: no answer within {limits.timeout_s:g} s") from None
    except OSError as error:
        raise PageError(f"{where}: {error.strerror or error or 'the connection broke'}") from error
    except UnicodeError:  # a host that no name service can be asked for
        raise PageError(f"{where}: the host has no valid name") from None
    except (httptools.HttpParserError, httptools.HttpParserUpgrade):
        raise PageError(f"{where}: the answer is not HTTP") from None


async def _exchange(address: ReplicaAddress, path: str, limits: Limits) -> Page:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        writer.write(_request(address, path))
        answer = _Answer(limits.max_body_bytes)
        while not answer.is_complete:
            data = await reader.read(_READ_BYTES)
            if not data:
                answer.end()
                break
            answer.feed(data)
        return Page(answer.status, bytes(answer.body))
    finally:
        writer.transport.abort()


def _request(address: ReplicaAddress, path: str) -> bytes:
    target = address.base + path.encode("ascii")
    headers = [
        (b"host", address.authority),
        (b"accept", b"text/plain;version=0.0.4, application/json;q=0.5"),
        (b"connection", b"close"),
    ]
    return head_bytes(b"GET " + target + b" HTTP/1.1", headers)


class _Answer:
    """Parses an answer; both its head and its body are bounded."""

    def __init__(self, max_body_bytes: int) -> None:
        self.status = 0
        self.body = bytearray()
        self.is_complete = False
        self._max_body_bytes = max_body_bytes
        self._overhead_bytes = 0  # of heads, and of framing since the last piece of the body
        self._is_sized = False
        self._parser: Any = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        self._overhead_bytes += len(data)
        self._parser.feed_data(data)
        if len(self.body) > self._max_body_bytes:
            raise OSError(f"the body is over {self._max_body_bytes} bytes")
        if not self.is_complete and self._overhead_bytes > MAX_HEAD_BYTES + _READ_BYTES:
            raise OSError(f"the head is over {MAX_HEAD_BYTES} bytes")

    def end(self) -> None:
        """The connection has ended: that is the end of a body without a length, and of no other."""
        if self.status == 0 or self._is_sized:
            raise OSError("closed the connection within the answer")
        self.is_complete = True

    def on_header(self, name: bytes, value: bytes) -> None:
        self._is_sized |= name.lower() in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            self.status = status

    def on_body(self, piece: bytes) -> None:
        self._overhead_bytes = 0
        self.body += piece

    def on_message_complete(self) -> None:
        self.is_complete = self.status != 0
