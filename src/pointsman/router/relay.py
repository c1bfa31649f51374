"""An answer on its way from a replica to a client, byte for byte, and the account of it."""

from __future__ import annotations

from collections.abc import Callable

from pointsman.dispatch.dispatcher import Ending
from pointsman.dispatch.record import CANCELLED, ERROR, OK, TRUNCATED
from pointsman.router.answers import error_event, failure, status_line
from pointsman.router.client import ClientConnection
from pointsman.router.flow import Signal
from pointsman.router.messages import (
    ClientRequest,
    Headers,
    ResponseHead,
    all_but,
    head_bytes,
    passing,
)
from pointsman.router.prompt import READ_PATHS
from pointsman.router.upstream import LostError, ReplicaError
from pointsman.router.usage import ResponseTap

EVENT_STREAM = b"text/event-stream"
ERROR_EVENT = "replica_error"  # of a stream that was begun well

# Only the router says these of its answers.
_OURS = all_but(
    b"x-pointsman-policy",
    b"x-pointsman-request-id",
    b"x-pointsman-replica",
    b"x-pointsman-prefill",
    b"x-pointsman-reason",
    b"x-pointsman-expected-wait-ms",
    b"x-pointsman-attempts",
)
_NO_ANSWER = ResponseTap(stream=False)


class Relay:
    """The Sink of one exchange. The body's bytes are not changed, only how they are framed.

    ``over``: who waits for the end of the exchange that is under way.
    """

    over: Signal
    _tap = _NO_ANSWER  # until there is one
    _is_stream = False
    _awaits_token = False
    _is_chunked = False
    _ends_by_closing = False
    _unsent_head = b""
    _status = CANCELLED
    _http_status: int | None = None
    _body_bytes = 0
    _error: str | None = None

    def __init__(
        self,
        client: ClientConnection,
        request: ClientRequest,
        stamp: bytes,
        first_token: Callable[[], None],
    ) -> None:
        """``stamp``: headers of ours, whole lines; ``first_token`` is called when it passes."""
        self._client = client
        self._request = request
        self._stamp = stamp
        self._first_token = first_token

    def say(self, line: bytes) -> None:
        """One more header of ours, before the answer begins."""
        self._stamp += line

    def begin(self, head: ResponseHead) -> None:
        """Take the head, to be sent on with our headers and what comes of the body with it."""
        kind = head.fields.get(b"content-type", b"")
        self._is_stream = self._awaits_token = kind.lower().startswith(EVENT_STREAM)
        self._tap = ResponseTap(stream=self._is_stream)
        self._http_status = head.status
        dropped = _OURS
        if head.status == 204:
            dropped |= {b"content-length"}  # it may have none. Source: RFC 9110, section 8.6.
        headers = passing(head.headers, head.fields, dropped)
        headers += self._framing(head)
        line = status_line(head.status, head.phrase)
        self._unsent_head = head_bytes(line, headers, self._stamp)

    def body(self, piece: bytes, *, is_end: bool) -> None:
        """Send a piece of the body on, in one write with what belongs to it."""
        self._body_bytes += len(piece)
        self._tap.feed(piece)
        if self._awaits_token and self._tap.saw_token:
            self._awaits_token = False
            self._first_token()
        data = self._framed(piece, is_end=is_end) if self._is_chunked else piece
        if self._unsent_head:
            data = self._unsent_head + data
            self._unsent_head = b""
        if data:
            self._client.write(data)

    def end(self, error: ReplicaError | None) -> None:
        """Let whoever waits for it go on."""
        self.over.give(error)

    @property
    def has_begun(self) -> bool:
        """Whether the client may have seen some of an answer."""
        return self._http_status is not None

    def finish(self) -> None:
        """The answer has ended as HTTP says it ends; it may be the replica's own error."""
        if self._is_cut_short:
            self.fail(LostError("the replica closed the connection"))
            return
        if self._tap.tells_an_error:
            self._status, self._error = TRUNCATED, ERROR_EVENT
            return
        self._status = OK if self._http_status is not None and self._http_status < 400 else ERROR

    def fail(self, error: ReplicaError) -> None:
        """The replica was lost: say so, as far as that can still be said."""
        self._error = error.code
        if self._http_status is None:
            self._status, self._http_status = ERROR, error.http_status
            answer = failure(error.http_status, str(error), error.code)
            self._client.answer(self._request, answer, self._stamp)
            return
        self._status = TRUNCATED
        if self._is_stream:
            apart = b"" if self._tap.ends_an_event else b"\n\n"
            event = error_event(f"{error}; the answer is incomplete", error.code)
            data = apart + event
            self._client.write(self._framed(data, is_end=False) if self._is_chunked else data)
        self._client.close()  # without the end that a whole answer has

    def ending(self) -> Ending:
        """The account; ``cancelled`` where neither ``finish`` nor ``fail`` was called."""
        return Ending(
            status=self._status,
            http_status=self._http_status,
            usage=self._tap.usage(),
            response_bytes=self._body_bytes,
            error=self._error,
        )

    def _framing(self, head: ResponseHead) -> Headers:
        """How the client will know where the body ends; a length is among the head's headers."""
        bodiless = self._request.method == b"HEAD" or head.status in (204, 304)
        sized = bodiless or b"content-length" in head.fields
        if not sized:
            is_openai = self._request.path in READ_PATHS
            self._ends_by_closing = is_openai and b"transfer-encoding" not in head.fields
            self._is_chunked = self._request.http_1_1
        framing = [(b"transfer-encoding", b"chunked")] if self._is_chunked else []
        if self._client.closes_after(self._request, unsized=not (sized or self._is_chunked)):
            framing.append((b"connection", b"close"))
        return framing

    @property
    def _is_cut_short(self) -> bool:
        """Whether a stream that only the end of its connection can end lacks its last event."""
        return self._ends_by_closing and self._is_stream and not self._tap.is_done

    def _framed(self, piece: bytes, *, is_end: bool) -> bytes:
        """The piece as a chunk, and the last one after it if nothing is missing."""
        chunk = b"%x\r\n%b\r\n" % (len(piece), piece) if piece else b""
        return chunk + b"0\r\n\r\n" if is_end and not self._is_cut_short else chunk
