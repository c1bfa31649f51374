"""One connection of the client: a request at a time, its answer stamped as it is read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, cast

import httptools

Clock = Callable[[], float]  # ms, monotonic
Headers = dict[bytes, bytes]  # names in lower case

_EVENT_STREAM = b"text/event-stream"


class Taker(Protocol):
    """Who takes an answer while it comes in."""

    def begin(self, status: int, headers: Headers, at_ms: float) -> None:
        """The head came with bytes that were read then; ``at_ms`` is of its first byte."""

    def feed(self, piece: bytes, at_ms: float) -> None:
        """A piece of the body."""

    def whole(self, at_ms: float) -> None:
        """The answer has ended, and the connection is free."""

    def lost(self, why: str, at_ms: float, *, is_stale: bool) -> None:
        """The connection is gone before the answer was whole.

        ``is_stale``: it had been used before, and closed before any byte of this answer.
        """


class Connection(asyncio.Protocol):
    """Made by an event loop; ``free`` is told when it can take another request, ``gone`` when it
    is closed."""

    def __init__(
        self,
        clock: Clock,
        free: Callable[[Connection], None],
        gone: Callable[[Connection], None],
    ) -> None:
        self._clock = clock
        self._free = free
        self._gone = gone
        self._transport: asyncio.Transport
        self._taker: Taker | None = None
        self._parser: Any = None
        self._headers: Headers = {}
        self._first_ms: float | None = None  # of the present answer
        self._at_ms = 0.0
        self._has_head = self._keeps = self._ends_with_close = False
        self._used = 0
        self.idle_since_ms = 0.0

    @property
    def is_open(self) -> bool:
        """Whether it can take a request."""
        return not self._transport.is_closing()

    def send(self, data: bytes, taker: Taker) -> float:
        """Send a whole request; the instant at which its bytes were handed to the socket."""
        self._taker = taker
        self._parser = httptools.HttpResponseParser(self)
        self._headers = {}
        self._first_ms = None
        self._has_head = False
        self._used += 1
        sent_ms = self._clock()
        self._transport.write(data)
        return sent_ms

    def abort(self) -> None:
        """Close at once; nobody is told."""
        self._taker = None
        self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ready for the first request."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Stamp, then parse."""
        self._at_ms = at_ms = self._clock()
        if self._taker is None:
            self._transport.abort()  # bytes that nobody asked for
            return
        if self._first_ms is None:
            self._first_ms = at_ms
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._lose("the answer is not HTTP")
            self._transport.abort()

    def eof_received(self) -> bool:
        """The other side sends no more."""
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """What was under way ends here; a body without a length ends well."""
        self._at_ms = self._clock()
        self._parser = None  # it knows us: together they would wait for the garbage collector
        self._gone(self)
        if self._taker is not None and self._has_head and self._ends_with_close and error is None:
            taker, self._taker = self._taker, None
            taker.whole(self._at_ms)
            return
        if error is None or isinstance(error, ConnectionError):
            within = "within the answer" if self._has_head else "before the answer began"
            self._lose(f"the connection was closed {within}")
        else:
            self._lose(f"the connection broke: {error}")

    def _lose(self, why: str) -> None:
        taker, self._taker = self._taker, None
        if taker is not None:
            is_stale = self._used > 1 and self._first_ms is None
            taker.lost(why, self._at_ms, is_stale=is_stale)

    # What the parser calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header of the head; trailers come after it and are dropped."""
        if not self._has_head:
            self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Tell of the head."""
        headers, status = self._headers, self._parser.get_status_code()
        if status < 200:  # an interim answer
            self._headers = {}
            return
        self._has_head = True
        self._keeps = self._parser.should_keep_alive()
        framed = b"content-length" in headers or b"transfer-encoding" in headers
        self._ends_with_close = not framed and status not in (204, 304)
        if self._taker is not None and self._first_ms is not None:
            self._taker.begin(status, headers, self._first_ms)

    def on_body(self, piece: bytes) -> None:
        """Pass a piece on."""
        if self._taker is not None:
            self._taker.feed(piece, self._at_ms)

    def on_message_complete(self) -> None:
        """Free, or to be closed."""
        if not self._has_head or self._taker is None:
            return
        taker, self._taker = self._taker, None
        if self._keeps and not self._ends_with_close:
            self.idle_since_ms = self._at_ms
            self._free(self)
        else:
            self._transport.close()
        taker.whole(self._at_ms)


def is_event_stream(headers: Headers) -> bool:
    """Whether the body is server-sent events."""
    return headers.get(b"content-type", b"").lower().startswith(_EVENT_STREAM)
