"""One client's connection: whole requests (incoming.py), one after the other, and answers back.

A flow (flow.py) a connection serves its requests in order. When the client leaves, the flow is
cancelled, and with it whatever it was waiting for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, cast

from pointsman.router.answers import Answer, failure, refusal
from pointsman.router.deadline import Deadline, Phase
from pointsman.router.edge import TOO_MANY, Edge
from pointsman.router.flow import Flow
from pointsman.router.incoming import Incoming
from pointsman.router.messages import ClientRequest
from pointsman.router.outbox import Sender

MAX_PIPELINED = 16
MOST_UNSENT_BYTES = 1 << 16  # of answers that wait for the end of a turn

TOO_SLOW = refusal(408, "the request did not come in time", "request_timeout")


class Source(Protocol):
    """Where an answer comes from, to be slowed down with the client."""

    def pause(self) -> None:
        """Read no more."""

    def resume(self) -> None:
        """Read on."""


Serve = Callable[[ClientRequest, "ClientConnection"], Coroutine[Any, None, None]]


class ClientConnection(Incoming, asyncio.Protocol):
    """A connection that a client made; the edge holds it while it is open."""

    _served_last: ClientRequest  # or is being served

    def __init__(self, serve: Serve, edge: Edge) -> None:
        super().__init__(edge)
        self._serve = serve
        self._transport: asyncio.Transport
        self._sender: Sender
        self._flow: Flow | None = None  # of the present request
        self._waiting: deque[ClientRequest | Answer] = deque()  # an Answer refuses what came
        self._source: Source | None = None  # of the answer that is under way
        self._is_slow = False  # more is written than the client has taken
        self._is_paused = False  # more requests wait than we take
        self._is_busy = False
        self._goes_on = False  # whether the next one is served in any case
        self._has_begun = False  # some of the present answer was written
        self._closes = False
        self._lingers = False  # turned away; what it still sends is thrown away
        self._written_bytes = 0
        self._deadline = Deadline(edge.limits)

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
        self._take_in(data)
        self._serve_waiting()

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
        self._serve_waiting()

    # Requests, one after the other.

    def _serve_waiting(self) -> None:
        """Serve what waits, unless something is being served: then this is called at its end."""
        if self._goes_on:  # one that was answered at once has ended
            return
        self._goes_on = True
        while self._waiting and not (self._is_busy or self._closes or self._transport.is_closing()):
            if self._is_behind():  # it gets no more before it has taken what it has
                break
            self._begin(self._next())
        self._goes_on = False
        if self._is_free and not self._closes:
            self._ask_for_the_body()

    def _is_behind(self) -> bool:
        """Whether the client has still to take what was written; ``resume_writing`` goes on."""
        if self._sender.unsent_bytes > MOST_UNSENT_BYTES:
            self._sender.flush()
        return self._is_slow

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

    @property
    def _is_free(self) -> bool:
        return not (self._is_busy or self._waiting)

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
