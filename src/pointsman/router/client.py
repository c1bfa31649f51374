"""One client's connection: bytes to whole requests, one after the other, and answers back.

A task a connection serves its requests in order. When the client leaves, the task is cancelled,
and with it whatever it was waiting for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, cast

import httptools

from pointsman.router.answers import Answer, failure, refusal
from pointsman.router.messages import (
    MAX_HEAD_BYTES,
    ClientRequest,
    Headers,
    forwarded,
    head_bytes,
    header_of,
)

MAX_BODY_BYTES = 64 << 20
MAX_PIPELINED = 16
LINGER_S = 2.0

TOO_LARGE = refusal(413, f"the body is larger than {MAX_BODY_BYTES} bytes", "body_too_large")
HEAD_TOO_LARGE = refusal(431, f"the head is larger than {MAX_HEAD_BYTES} bytes", "head_too_large")
NOT_HTTP = refusal(400, "this is not an HTTP/1.1 request", "not_http")
NO_TARGET = refusal(400, "the request's target is no URL", "invalid_target")
NO_TUNNELS = refusal(405, "CONNECT is not offered", "method_not_allowed")

_NO_UPGRADE = frozenset((b"upgrade", b"connection", b"http2-settings"))


class Source(Protocol):
    """Where an answer comes from, to be slowed down with the client."""

    def pause(self) -> None:
        """Read no more."""

    def resume(self) -> None:
        """Read on."""


Serve = Callable[[ClientRequest, "ClientConnection"], Awaitable[None]]
Complain = Callable[[str], None]


class ClientConnection(asyncio.Protocol):
    """A connection that a client made; ``open_connections`` holds it while it is open.

    ``complain`` is told of requests that the router itself failed to serve.
    """

    _headers: Headers
    _body: bytearray

    def __init__(
        self, serve: Serve, open_connections: set[ClientConnection], complain: Complain
    ) -> None:
        self._serve = serve
        self._open = open_connections
        self._complain = complain
        self._transport: asyncio.Transport
        self._task: asyncio.Task[None]
        self._waiting: deque[ClientRequest | Answer] = deque()  # an Answer refuses what came
        self._arrived = asyncio.Event()
        self._source: Source | None = None  # of the answer that is under way
        self._is_slow = False  # more is written than the client has taken
        self._is_paused = False  # more requests wait than we take
        self._is_deaf = False  # what comes in is thrown away
        self._is_busy = False
        self._has_begun = False  # some of the present answer was written
        self._closes = False
        self._owes_continue = False  # the client waits to be asked for the body
        self._unfinished_bytes = 0  # since a head, a piece of a body or a message was complete
        self._new_message()

    # For whoever answers.

    def attach(self, source: Source | None) -> None:
        """Slow this source down when the client is slow; None when the answer has ended."""
        self._source = source
        if source is not None and self._is_slow:
            source.pause()

    def write(self, data: bytes) -> None:
        """Send bytes of the present answer."""
        self._has_begun = True
        self._transport.write(data)

    def answer(self, request: ClientRequest, answer: Answer, headers: Headers) -> None:
        """Send an answer of our own."""
        close = self.closes_after(request)
        bodiless = request.method == b"HEAD"
        self.write(answer.on_the_wire(headers, close=close, bodiless=bodiless))

    def closes_after(self, request: ClientRequest, *, unsized: bool = False) -> bool:
        """Whether the connection ends with this request's answer, and from now on it will."""
        self._closes = self._closes or unsized or not request.keep_alive
        return self._closes

    def close(self) -> None:
        """Close when what was written has been sent."""
        self._closes = True
        self._transport.close()

    def close_when_idle(self) -> None:
        """Serve what is being served, then close."""
        self._closes = True
        if not self._is_busy:
            self.close()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve."""
        self._transport = cast(asyncio.Transport, transport)
        self._open.add(self)
        self._task = asyncio.get_running_loop().create_task(self._serve_all())

    def data_received(self, data: bytes) -> None:
        """Parse what came in; whole requests queue up."""
        self._unfinished_bytes += len(data)
        left = memoryview(data)
        while left and not self._is_deaf:
            left = left[self._parse(left) :]
        # The parser tells of a header, or a trailer, only when it is whole.
        if self._unfinished_bytes > MAX_HEAD_BYTES:
            self._refuse(HEAD_TOO_LARGE)

    def _parse(self, data: memoryview) -> int:
        """How much of it was parsed: all, or up to the end of a head that asks for an upgrade."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline_upgrade()
            return int(upgrade.args[0])
        except httptools.HttpParserError:
            self._refuse(NOT_HTTP)
        return len(data)

    def eof_received(self) -> bool:
        """The client sends no more: take it that it has left, as a request may be slow to answer.

        Who has left and who only closed the sending side cannot be told apart before a write, and
        an engine is not to go on for nobody.
        """
        return False  # the transport closes

    def connection_lost(self, error: Exception | None) -> None:
        """The client has left: so does what was done for it."""
        self._open.discard(self)
        self._task.cancel()

    def pause_writing(self) -> None:
        """The client is slower than the replica."""
        self._is_slow = True
        if self._source is not None:
            self._source.pause()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._is_slow = False
        if self._source is not None:
            self._source.resume()

    # What the parser calls.

    def on_url(self, piece: bytes) -> None:
        """Collect the target."""
        self._target += piece
        self._count_head(len(piece))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; a trailer, which comes after the head, is dropped."""
        if not self._head_is_complete:
            self._headers.append((name.lower(), value))
            self._count_head(len(name) + len(value) + len(b": \r\n"))

    def on_headers_complete(self) -> None:
        """Refuse what is too large before it is sent; ask for what waits to be asked."""
        self._head_is_complete = True
        self._unfinished_bytes = 0
        if int(header_of(self._headers, b"content-length") or 0) > MAX_BODY_BYTES:
            self._refuse(TOO_LARGE)
        elif self._wants_to_be_asked():
            self._owes_continue = True
            if not (self._is_busy or self._waiting):
                self._ask_for_the_body()

    def on_body(self, piece: bytes) -> None:
        """Collect the body."""
        self._unfinished_bytes = 0
        self._body += piece
        if len(self._body) > MAX_BODY_BYTES:
            self._refuse(TOO_LARGE)

    def on_message_complete(self) -> None:
        """Queue the request."""
        self._unfinished_bytes = 0
        if self._is_deaf or self._parser.should_upgrade():
            return
        self._owes_continue = False
        http_1_1 = self._parser.get_http_version() == "1.1"
        request = ClientRequest(
            method=self._parser.get_method(),
            target=self._target,
            headers=self._headers,
            body=bytes(self._body),
            keep_alive=http_1_1 and self._parser.should_keep_alive(),
            http_1_1=http_1_1,
        )
        self._new_message(self._parser)
        if request.has_target:
            self._queue(request)
        else:
            self._refuse(NO_TARGET)

    # Requests, one after the other.

    async def _serve_all(self) -> None:
        while not (self._closes or self._transport.is_closing()):
            request = await self._next()
            self._is_busy, self._has_begun = True, False
            if isinstance(request, Answer):
                self._turn_away(request)
                return
            try:
                await self._serve(request, self)
            except Exception as error:
                self._apologise(request, error)
            self._is_busy = False
        self._transport.close()

    async def _next(self) -> ClientRequest | Answer:
        while not self._waiting:
            self._ask_for_the_body()
            self._arrived.clear()
            await self._arrived.wait()
        request = self._waiting.popleft()
        if self._is_paused and not self._waiting:
            self._is_paused = False
            self._transport.resume_reading()
        return request

    def _wants_to_be_asked(self) -> bool:
        """Not by HTTP/1.0; and a head that asks for an upgrade as well is parsed once more."""
        if self._parser.should_upgrade() or self._parser.get_http_version() != "1.1":
            return False
        return (header_of(self._headers, b"expect") or b"").lower() == b"100-continue"

    def _ask_for_the_body(self) -> None:
        """To be called in the turn of the request: an interim answer waits for those before it."""
        if self._owes_continue:
            self._owes_continue = False
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _apologise(self, request: ClientRequest, error: Exception) -> None:
        self._complain(f"a request failed: {type(error).__name__}: {error}")
        if self._has_begun:
            self.close()
        else:
            self.answer(request, failure(500, "the router failed; see its log", "router_error"), [])

    def _turn_away(self, answer: Answer) -> None:
        """Answer, and listen a little longer: a close on unread bytes would destroy the answer."""
        self.write(answer.on_the_wire([], close=True))
        self._transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER_S, self._transport.close)

    def _queue(self, item: ClientRequest | Answer) -> None:
        self._waiting.append(item)
        self._arrived.set()
        if len(self._waiting) > MAX_PIPELINED and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def _refuse(self, answer: Answer) -> None:
        if not self._is_deaf:
            self._is_deaf = True
            self._body = bytearray()
            self._owes_continue = False
            self._queue(answer)

    def _count_head(self, length: int) -> None:
        self._head_bytes += length
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(HEAD_TOO_LARGE)

    def _decline_upgrade(self) -> None:
        """Go on in HTTP/1.1: parse the head again without its wish; what follows is a body.

        The parser takes a body after such a head for another protocol; Java's client sends
        ``Upgrade: h2c`` with every first request.
        """
        method = self._parser.get_method()
        if method == b"CONNECT":
            self._refuse(NO_TUNNELS)
            return
        kept = forwarded(self._headers, _NO_UPGRADE)
        coded = header_of(self._headers, b"transfer-encoding")
        if coded is not None:
            kept.append((b"transfer-encoding", coded))
        version = self._parser.get_http_version().encode()
        head = head_bytes(method + b" " + self._target + b" HTTP/" + version, kept)
        self._new_message()
        self._parse(memoryview(head))

    def _new_message(self, parser: Any = None) -> None:
        self._parser: Any = parser or httptools.HttpRequestParser(self)
        self._target = b""
        self._headers = []
        self._body = bytearray()
        self._head_bytes = 0
        self._head_is_complete = False
