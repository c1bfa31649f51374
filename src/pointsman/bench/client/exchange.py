"""One request and its answer: sent, awaited, and ended exactly once, with a status."""

from __future__ import annotations

from collections.abc import Callable

from pointsman.bench.client.answer import Answer
from pointsman.bench.client.chunks import error_text
from pointsman.bench.client.connection import Connection, Headers, is_event_stream
from pointsman.bench.client.rows import ERROR, OK, REJECTED, TRUNCATED, Status

_TOO_MANY, _UNAVAILABLE, _OK = 429, 503, 200
_NO_HEADERS: Headers = {}


class Exchange:
    """``on_end`` is called once, when ``status`` is known."""

    __slots__ = (
        "_connection",
        "_on_end",
        "_resend",
        "answer",
        "begun_ms",
        "data",
        "end_ms",
        "error",
        "first_byte_ms",
        "headers",
        "http_status",
        "number",
        "sends",
        "sent_ms",
        "status",
    )

    def __init__(self, number: int, data: bytes, on_end: Callable[[Exchange], None]) -> None:
        self.number = number
        self.data = data  # the whole request
        self.answer: Answer | None = None
        self.headers = _NO_HEADERS
        self.http_status: int | None = None
        self.begun_ms = 0.0  # when it was given to the sender
        self.sent_ms: float | None = None
        self.first_byte_ms: float | None = None
        self.end_ms: float | None = None
        self.status: Status | None = None
        self.error: str | None = None
        self.sends = 0
        self._on_end = on_end
        self._connection: Connection | None = None
        self._resend: Callable[[Exchange], None] | None = None

    @property
    def is_ended(self) -> bool:
        """Whether its status is known."""
        return self.status is not None

    def send_on(self, connection: Connection, resend: Callable[[Exchange], None]) -> None:
        """Send it; ``resend`` is what to do if the connection turns out to have been closed."""
        self._connection = connection
        self._resend = resend
        self.sends += 1
        sent_ms = connection.send(self.data, self)
        self.sent_ms = sent_ms if self.sent_ms is None else self.sent_ms

    def give_up(self, status: Status, error: str, at_ms: float) -> None:
        """End it from this side; the connection is closed, which aborts it at the engine."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()
        self._end(status, error, at_ms)

    # What the connection calls.

    def begin(self, status: int, headers: Headers, at_ms: float) -> None:
        """The head of the answer."""
        self.http_status = status
        self.headers = headers
        self.first_byte_ms = at_ms
        self.answer = Answer(is_stream=status == _OK and is_event_stream(headers))

    def feed(self, piece: bytes, at_ms: float) -> None:
        """A piece of the body."""
        if self.answer is not None:
            self.answer.feed(piece, at_ms)

    def whole(self, at_ms: float) -> None:
        """The answer has ended as HTTP has it."""
        self._connection = None
        assert self.answer is not None, "a head comes before the end"
        self.answer.end(at_ms)
        status, error = _of_whole(self.http_status, self.headers, self.answer)
        self._end(status, error, at_ms)

    def lost(self, why: str, at_ms: float, *, is_stale: bool) -> None:
        """The connection is gone; a stale one says nothing of the server, and is replaced once."""
        self._connection = None
        if is_stale and self.sends == 1 and self._resend is not None:
            self._resend(self)
            return
        has_tokens = self.answer is not None and self.answer.chunks > 0
        self._end(TRUNCATED if has_tokens else ERROR, why, at_ms)

    def _end(self, status: Status, error: str | None, at_ms: float) -> None:
        if self.status is None:
            self.status, self.error, self.end_ms = status, error, at_ms
            self._on_end(self)


def _of_whole(
    http_status: int | None, headers: Headers, answer: Answer
) -> tuple[Status, str | None]:
    if http_status != _OK:
        asks_to_wait = http_status == _UNAVAILABLE and b"retry-after" in headers
        status: Status = REJECTED if http_status == _TOO_MANY or asks_to_wait else ERROR
        said = answer.error or error_text(answer.body.decode("utf-8", "replace"))
        return status, f"HTTP {http_status}{': ' if said else ''}{said}"
    if answer.error is not None:
        return (TRUNCATED if answer.chunks else ERROR), answer.error
    if not answer.is_complete:
        why = f"finish_reason {answer.finish_reason}" if answer.finish_reason else "no [DONE]"
        return (TRUNCATED if answer.chunks else ERROR), f"the stream ended early: {why}"
    return OK, None
