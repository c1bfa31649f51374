"""One connection to a replica.

It carries one exchange at a time. It goes back to the pool only if the answer ended where HTTP
says it ends and both sides keep it open.

    ReplicaError                the replica did not answer, or stopped within its answer
    ├── UnreachableError        no connection: it has not seen the request
    ├── OutOfFilesError         no connection, for the router may open none: no fault of the replica
    ├── LostError               the connection was lost: it may have begun to work, and stopped
    │   └── StaleConnectionError    on a kept connection without a byte of an answer
    └── SilentError             it was silent for too long, and the connection was given up
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

import httptools

from pointsman.core.errors import InputError, MachineError
from pointsman.router.messages import MAX_HEAD_BYTES, Headers, ResponseHead, fields_of
from pointsman.router.outbox import Outbox, Sender
from pointsman.router.settings import Timeouts


class ReplicaError(MachineError):
    """The replica did not answer, or stopped within its answer."""

    http_status = 502  # of the router's answer, where none has begun

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class UnreachableError(ReplicaError):
    """No connection could be made; nothing was sent."""

    def __init__(self, url: str, why: str, http_status: int = 502) -> None:
        super().__init__(f"replica {url} cannot be reached: {why}", "replica_unreachable")
        self.why = why
        self.http_status = http_status


class OutOfFilesError(ReplicaError):
    """The system lets the router open no further connection, to whomever."""

    http_status = 503

    def __init__(self, url: str) -> None:
        message = f"no connection to replica {url}: the router has too many open files"
        super().__init__(message, "too_many_open_files")


class LostError(ReplicaError):
    """The connection was lost after the request was sent."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "replica_lost")


class StaleConnectionError(LostError):
    """A connection that had been used before was closed before any byte of this answer.

    The replica closed it while it was idle, and is likely to be well: llama.cpp does so after
    every stream, without saying it would.
    """


class SilentError(ReplicaError):
    """No byte came for as long as a limit allows."""

    http_status = 504

    def __init__(self, message: str) -> None:
        super().__init__(message, "replica_timeout")


@dataclass(frozen=True, slots=True)
class ReplicaAddress:
    """Where a replica listens; ``base`` goes before every path."""

    url: str
    host: str
    port: int
    base: bytes = b""
    authority: bytes = field(init=False, repr=False)  # the value of the Host header

    def __post_init__(self) -> None:
        host = f"[{self.host}]" if ":" in self.host else self.host
        object.__setattr__(self, "authority", f"{host}:{self.port}".encode("ascii"))


def replica_address(url: str, where: str = "--replica") -> ReplicaAddress:
    """Read ``http://HOST[:PORT][/BASE]``. Raises InputError for anything else."""
    wrong = InputError(f"{where} {url}: is no address; expected http://HOST:PORT")
    try:
        parts = urlsplit(url)
        port = 80 if parts.port is None else parts.port
        base = parts.path.rstrip("/").encode("ascii")
        host = (parts.hostname or "").encode("ascii").decode("ascii")
    except ValueError:
        raise wrong from None
    if parts.scheme != "http" or not host or not port:
        raise wrong
    if parts.username or parts.password or parts.query or parts.fragment:
        raise wrong
    return ReplicaAddress(url.rstrip("/"), host, port, base)


class Sink(Protocol):
    """Who receives an answer while it comes in."""

    def begin(self, head: ResponseHead) -> None:
        """Take the head; at least one ``body`` follows."""

    def body(self, piece: bytes, *, is_end: bool) -> None:
        """Take the body bytes of one read, perhaps none; ``is_end``: nothing follows."""

    def end(self, error: ReplicaError | None) -> None:
        """The exchange is over, well or not; told once, last of all."""


class Upstream(asyncio.Protocol):
    """One connection to a replica."""

    _phrase: bytes
    _headers: Headers
    _head_bytes: int
    _pieces: list[bytes]
    _complete: bool

    def __init__(self, address: ReplicaAddress, outbox: Outbox | None = None) -> None:
        self.idle_since_s = 0.0
        self.address = address
        self._outbox = outbox or Outbox()
        self._transport: asyncio.Transport | None = None
        self._sender: Sender | None = None
        self._sink: Sink | None = None
        self.is_kept = True  # by both sides, as far as we know
        self._bodiless = False
        self._is_paused = False
        self._is_used = False
        self._is_answered = False  # a byte of the present answer has come
        self._moved_s = 0.0  # when the last byte came, or was first waited for
        self._parser: Any = httptools.HttpResponseParser(self)
        self._reset()

    def exchange(self, request: bytes, sink: Sink, *, bodiless: bool) -> None:
        """Send a request; the sink is told of what comes of it.

        ``bodiless``: the answer has no body whatever its head says (HEAD).
        """
        assert self._sink is None, "one exchange at a time"
        self._sink = sink
        self._bodiless = bodiless
        self._reset()
        self._is_answered = False
        self._moved_s = time.monotonic()
        if self._sender is None or self._sender.is_closing:
            self._lose("closed the connection before the request")
        else:
            self._sender.write(request)

    @property
    def reusable(self) -> bool:
        """Whether the next exchange may use this connection."""
        return (
            self.is_kept
            and self._sink is None
            and self._sender is not None
            and not self._sender.is_closing
            and self._sender.unsent_bytes == 0
        )

    def abort(self) -> None:
        """Give the connection up at once; the replica sees its client leave."""
        self._sink = None
        self.is_kept = False
        if self._sender is not None:
            self._sender.abort()

    def cut_off(self, why: str) -> None:
        """Give the connection up in the middle of its exchange."""
        self._fail(LostError(f"replica {self.address.url} {why}"))

    def check(self, now_s: float, timeouts: Timeouts) -> None:
        """Give the connection up if it has been silent for too long; a slow client's is not."""
        if self._sink is None or self._is_paused:
            return
        limit_ms = timeouts.idle_ms if self._is_answered else timeouts.first_byte_ms
        if (now_s - self._moved_s) * 1000.0 >= limit_ms:
            missing = "further byte" if self._is_answered else "byte of an answer"
            message = f"replica {self.address.url} sent no {missing} for {limit_ms:g} ms"
            self._fail(SilentError(message))

    def pause(self) -> None:
        """Read no more until ``resume``: the client is slow."""
        if not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._moved_s = time.monotonic()
            self._transport.resume_reading()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)
        self._sender = Sender(self._transport, self._outbox)

    def data_received(self, data: bytes) -> None:
        """Parse what came in, and pass the body on in one piece."""
        if self._sink is None:
            self.abort()  # nobody asked
            return
        self._is_answered = True
        self._moved_s = time.monotonic()
        self._pieces = []
        self._unfinished_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.is_kept = False
            self._pass_on()
            if not self._complete:
                self._break("sent what is not HTTP")
        else:
            self._pass_on()
        if self._complete:
            self._finish()
        elif self._unfinished_bytes > MAX_HEAD_BYTES:
            self._lose_for_its_head()

    def connection_lost(self, error: Exception | None) -> None:
        """End the exchange, well where the answer runs until the end of the connection."""
        self.is_kept = False
        if self._sink is None:
            return
        if self._until_close and error is None:
            self._complete = True
            self._pieces = []
            self._pass_on()
            self._finish()
        else:
            self._lose("closed the connection")

    # What the parser calls.

    def on_message_begin(self) -> None:
        """An answer; a second one, that nobody asked for, makes the connection suspect."""
        if self._complete:
            self.is_kept = False

    def on_status(self, phrase: bytes) -> None:
        """Collect the phrase."""
        self._phrase += phrase

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; a trailer, which comes after the head, is dropped."""
        if not self._begun:
            self._headers.append((name.lower(), value))
            self._head_bytes += len(name) + len(value) + len(b": \r\n")

    def on_headers_complete(self) -> None:
        """Begin the answer, unless it is an interim one."""
        self._unfinished_bytes = 0
        if self._head_bytes > MAX_HEAD_BYTES:
            self._lose_for_its_head()
        status = self._parser.get_status_code()
        if status < 200 or self._complete or self._sink is None:
            return
        self._begun = True
        fields = fields_of(self._headers)
        if b"content-length" not in fields and b"transfer-encoding" not in fields:
            self._until_close = not (self._bodiless or status in (204, 304))
        self._sink.begin(ResponseHead(status, self._phrase, self._headers, fields))
        if self._bodiless and status not in (204, 304):
            self._complete = True  # the parser would wait for a body: use it no more
            self.is_kept = False

    def on_body(self, piece: bytes) -> None:
        """Collect; one read may bring many pieces."""
        self._unfinished_bytes = 0
        if not (self._bodiless or self._complete):
            self._pieces.append(piece)

    def on_message_complete(self) -> None:
        """Note the end, and whether the connection outlives it: later the parser forgets."""
        if self._complete:
            return
        if not self._begun:
            self._phrase, self._headers, self._head_bytes = b"", [], 0
            return  # that was an interim answer; the real one follows
        self._complete = True
        self.is_kept = self.is_kept and self._parser.should_keep_alive()

    def _reset(self) -> None:
        self._phrase = b""
        self._headers = []
        self._head_bytes = 0
        self._unfinished_bytes = 0  # since a head or a piece of a body was complete
        self._pieces = []
        self._begun = False
        self._complete = False
        self._until_close = False

    def _pass_on(self) -> None:
        if self._begun and self._sink is not None:
            pieces = self._pieces
            whole = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self._sink.body(whole, is_end=self._complete)

    def _finish(self) -> None:
        self._is_used = True
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.end(None)

    def _lose(self, what: str) -> None:
        is_stale = self._is_used and not self._is_answered
        kind = StaleConnectionError if is_stale else LostError
        self._fail(kind(f"replica {self.address.url} {what}"))

    def _lose_for_its_head(self) -> None:
        self._break(f"sent a head or a trailer over {MAX_HEAD_BYTES} bytes")

    def _break(self, what: str) -> None:
        self._fail(ReplicaError(f"replica {self.address.url} {what}", "replica_protocol"))

    def _fail(self, error: ReplicaError) -> None:
        sink = self._sink
        self.abort()
        if sink is not None:
            sink.end(error)
