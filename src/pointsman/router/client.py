"""One client's connection: bytes to whole requests, one after the other, and answers back.

A task a connection serves its requests in order. When the client leaves, the task is cancelled,
and with it whatever it was waiting for.

Where a message ends must be beyond doubt. The parser (llhttp without its leniencies) refuses two
lengths, folded lines, bare line feeds and sizes that are no numbers; what it lets pass and we do
not is refused when a head is complete. A refusal ends the connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, cast

import httptools

from pointsman.router.answers import Answer, failure, refusal, report
from pointsman.router.deadline import Deadline, Phase
from pointsman.router.edge import TOO_MANY, Edge
from pointsman.router.flow import Flow
from pointsman.router.framing import is_framed
from pointsman.router.messages import (
    ClientRequest,
    Fields,
    Headers,
    all_but,
    fields_of,
    head_bytes,
    passing,
)
from pointsman.router.outbox import Sender

MAX_PIPELINED = 16

NOT_HTTP = refusal(400, "this is not an HTTP/1.1 request", "not_http")
NO_TARGET = refusal(400, "the request's target is no URL", "invalid_target")
NO_TUNNELS = refusal(405, "CONNECT is not offered", "method_not_allowed")
TOO_SLOW = refusal(408, "the request did not come in time", "request_timeout")
ALIVE = report({"status": "ok"})

# Anybody may ask whether the router is alive, and whether it is ready; no more than that.
HEALTH = b"/health"
READY = b"/ready"
OUR_PREFIX = b"x-pointsman-"  # what we say of a request; nobody says it to us

_NO_UPGRADE = all_but()  # all that only concerns the connection, the wish for an upgrade too


class Source(Protocol):
    """Where an answer comes from, to be slowed down with the client."""

    def pause(self) -> None:
        """Read no more."""

    def resume(self) -> None:
        """Read on."""


Serve = Callable[[ClientRequest, "ClientConnection"], Coroutine[Any, None, None]]


class ClientConnection(asyncio.Protocol):
    """A connection that a client made; the edge holds it while it is open."""

    _headers: Headers  # of the head, then of the trailer
    _head: Headers
    _fields: Fields  # of the head
    _is_1_1: bool  # by the head
    _served_last: ClientRequest  # or is being served
    _body: bytes | bytearray

    def __init__(self, serve: Serve, edge: Edge) -> None:
        self._serve = serve
        self._edge = edge
        self._transport: asyncio.Transport
        self._sender: Sender
        self._flow: Flow | None = None  # of the present request
        self._waiting: deque[ClientRequest | Answer] = deque()  # an Answer refuses what came
        self._source: Source | None = None  # of the answer that is under way
        self._is_slow = False  # more is written than the client has taken
        self._is_paused = False  # more requests wait than we take
        self._is_deaf = False  # what comes in is thrown away
        self._is_busy = False
        self._goes_on = False  # whether the next one is served in any case
        self._has_begun = False  # some of the present answer was written
        self._closes = False
        self._owes_continue = False  # the client waits to be asked for the body
        self._lingers = False  # turned away; what it still sends is thrown away
        self._written_bytes = 0
        self._messages = 0
        self._deadline = Deadline(edge.limits)
        self._read_bytes = 0  # of the last read
        self._message_bytes = 0  # of the present message, or more
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
        self._written_bytes += len(data)
        self._sender.write(data)

    def answer(self, request: ClientRequest, answer: Answer, stamp: bytes = b"") -> None:
        """Send an answer of our own; ``stamp``: further headers, whole lines."""
        close = self.closes_after(request)
        bodiless = request.method == b"HEAD"
        self.write(answer.on_the_wire(stamp, close=close, bodiless=bodiless))

    def closes_after(self, request: ClientRequest, *, unsized: bool = False) -> bool:
        """Whether the connection ends with this request's answer, and from now on it will."""
        self._closes = self._closes or unsized or not request.keep_alive
        return self._closes

    def close(self) -> None:
        """Close when what was written has been sent."""
        self._closes = True
        self._sender.close()

    def close_when_idle(self) -> None:
        """Serve what is being served, then close."""
        self._closes = True
        if not self._is_busy:
            self.close()

    def abort(self) -> None:
        """Close at once."""
        self._sender.abort()

    def check_deadline(self, now_s: float) -> None:
        """Give up a client that has made no progress for too long."""
        phase, progress = self._progress()
        if not self._deadline.is_over(phase, progress, now_s):
            return
        if phase in (Phase.HEAD, Phase.BODY):
            self._refuse(TOO_SLOW)
            self._serve_waiting()
        elif phase is Phase.IDLE:
            self.close()
        else:
            self.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve, or say that there is no room."""
        self._transport = cast(asyncio.Transport, transport)
        self._sender = Sender(self._transport, self._edge.outbox)
        if self._edge.is_full:
            self._is_deaf = True
            self.write(TOO_MANY.on_the_wire(close=True))
            self.close()
            return
        self._edge.connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Parse what came in; whole requests queue up."""
        self._read_bytes = size = len(data)
        self._message_bytes += size
        self._unfinished_bytes += size
        parsed = 0 if self._is_deaf else self._parse(data)
        while parsed < size and not self._is_deaf:
            parsed += self._parse(memoryview(data)[parsed:])
        # The parser tells of a header, or a trailer, only when it is whole.
        if self._unfinished_bytes > self._edge.limits.max_head_bytes:
            self._refuse(self._edge.head_too_large)
        self._serve_waiting()

    def _parse(self, data: bytes | memoryview) -> int:
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
        self._edge.connections.discard(self)
        self._waiting.clear()
        self._owes_continue = False
        if self._flow is not None:
            self._flow.cancel()

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

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, unless it is ours; a trailer, which comes after the head, is dropped."""
        name = name.lower()
        if not name.startswith(OUR_PREFIX):
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Refuse what is wrong or too large before it is sent; ask for what waits to be asked."""
        headers, self._headers = self._headers, []  # what follows are trailers
        self._head = headers
        self._fields = fields_of(headers)
        version = self._parser.get_http_version()
        self._is_1_1 = version == "1.1"
        self._head_is_complete = True
        refused = self._refusal_of_head(version)
        self._unfinished_bytes = 0
        if refused is not None:
            self._refuse(refused)
        elif b"expect" in self._fields and self._wants_to_be_asked():
            self._owes_continue = True
            if not (self._is_busy or self._waiting):
                self._ask_for_the_body()

    def _refusal_of_head(self, version: str) -> Answer | None:
        edge, fields = self._edge, self._fields
        if self._message_bytes > edge.limits.max_head_bytes and self._head_is_too_large():
            return edge.head_too_large
        if len(self._head) > edge.limits.max_headers:
            return edge.too_many_headers
        if not is_framed(version, self._head, fields):
            return NOT_HTTP
        if edge.has_keys:
            stranger = edge.refusal_of(fields.get(b"authorization"))
            if stranger is not None:
                return self._refusal_of_stranger(stranger)
            if edge.drops_authorization:
                self._head = [pair for pair in self._head if pair[0] != b"authorization"]
                fields.pop(b"authorization", None)
        if int(fields.get(b"content-length", b"0")) > edge.limits.max_body_bytes:
            return edge.body_too_large
        return None

    def _head_is_too_large(self) -> bool:
        """To be asked where so much has come that it can be."""
        most = self._edge.limits.max_head_bytes
        lines = sum(len(name) + len(value) + len(b": \r\n") for name, value in self._head)
        return len(self._target) + lines > most

    def _refusal_of_stranger(self, stranger: Answer) -> Answer | None:
        is_probe = self._parser.get_method() in (b"GET", b"HEAD")
        if not (is_probe and self._target in (HEALTH, READY)):
            return stranger
        return ALIVE if self._target == HEALTH else None

    def on_body(self, piece: bytes) -> None:
        """Collect the body."""
        self._unfinished_bytes = 0
        if not self._body:
            self._body = piece
        elif isinstance(self._body, bytearray):
            self._body += piece
        else:
            self._body = bytearray(self._body) + piece
        if len(self._body) > self._edge.limits.max_body_bytes:
            self._refuse(self._edge.body_too_large)

    def on_message_complete(self) -> None:
        """Queue the request."""
        self._unfinished_bytes = 0
        self._message_bytes = self._read_bytes  # the next one may be in it
        parser = self._parser
        if self._is_deaf or parser.should_upgrade():
            return
        self._owes_continue = False
        request = ClientRequest(
            parser.get_method(),
            self._target,
            self._head,
            self._body,
            keep_alive=self._is_1_1 and parser.should_keep_alive(),
            http_1_1=self._is_1_1,
            fields=self._fields,
        )
        self._new_message(parser)
        if request.has_target:
            self._queue(request)
        else:
            self._refuse(NO_TARGET)

    # Requests, one after the other.

    def _serve_waiting(self) -> None:
        """Serve what waits, unless something is being served: then this is called at its end."""
        if self._goes_on:  # one that was answered at once has ended
            return
        self._goes_on = True
        while self._waiting and not (self._is_busy or self._closes or self._transport.is_closing()):
            self._begin(self._next())
        self._goes_on = False
        if not (self._is_busy or self._closes):
            self._ask_for_the_body()

    def _begin(self, request: ClientRequest | Answer) -> None:
        self._is_busy, self._has_begun = True, False
        if isinstance(request, Answer):
            self._turn_away(request)
            return
        self._served_last = request
        self._edge.outbox.served += 1
        self._flow = Flow(self._serve(request, self), self._served)
        self._flow.go_on()

    def _served(self, error: Exception | None) -> None:
        self._edge.outbox.served -= 1
        if error is not None:
            self._apologise(self._served_last, error)
        self._is_busy = False
        self._flow = None
        if self._closes:
            self._sender.close()
        else:
            self._serve_waiting()

    def _next(self) -> ClientRequest | Answer:
        request = self._waiting.popleft()
        if self._is_paused and not self._waiting:
            self._is_paused = False
            self._transport.resume_reading()
        return request

    def _wants_to_be_asked(self) -> bool:
        """Not by HTTP/1.0; and a head that asks for an upgrade as well is parsed once more."""
        if self._parser.should_upgrade() or not self._is_1_1:
            return False
        return self._fields.get(b"expect", b"").lower() == b"100-continue"

    def _ask_for_the_body(self) -> None:
        """To be called in the turn of the request: an interim answer waits for those before it."""
        if self._owes_continue:
            self._owes_continue = False
            self._sender.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _apologise(self, request: ClientRequest, error: Exception) -> None:
        self._edge.complain(f"a request failed: {type(error).__name__}: {error}")
        if self._has_begun:
            self.close()
        else:
            self.answer(request, failure(500, "the router failed; see its log", "router_error"))

    def _turn_away(self, answer: Answer) -> None:
        """Answer, and listen a little longer: a close on unread bytes would destroy the answer."""
        self.write(answer.on_the_wire(close=True))
        self._lingers = True
        self._sender.write_eof()

    # Deadlines.

    def _progress(self) -> tuple[Phase, int]:
        """What the connection waits for, and a number that grows as long as it comes."""
        unsent_bytes = self._sender.unsent_bytes
        if unsent_bytes:
            return Phase.WRITE, self._written_bytes - unsent_bytes
        if self._lingers:
            return Phase.LINGER, 0
        if self._is_busy or self._waiting:
            return Phase.REPLICA, self._messages
        if self._head_is_complete:
            return Phase.BODY, len(self._body) + self._unfinished_bytes
        return (Phase.HEAD if self._unfinished_bytes else Phase.IDLE), self._messages

    def _queue(self, item: ClientRequest | Answer) -> None:
        self._waiting.append(item)
        if len(self._waiting) > MAX_PIPELINED and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def _refuse(self, answer: Answer) -> None:
        if not self._is_deaf:
            self._is_deaf = True
            self._body = b""
            self._owes_continue = False
            self._queue(answer)

    def _decline_upgrade(self) -> None:
        """Go on in HTTP/1.1: parse the head again without its wish; what follows is a body.

        The parser takes a body after such a head for another protocol; Java's client sends
        ``Upgrade: h2c`` with every first request.
        """
        if self._is_deaf:
            return
        method = self._parser.get_method()
        if method == b"CONNECT":
            self._refuse(NO_TUNNELS)
            return
        kept = passing(self._head, self._fields, _NO_UPGRADE)
        coded = self._fields.get(b"transfer-encoding")
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
        self._body = b""
        self._messages += 1
        self._head_is_complete = False
