"""What the router answers by itself: errors in OpenAI's shape, and its health."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec

from pointsman.router.messages import head_bytes

JSON = (b"content-type", b"application/json")


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer of our own."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()
    kind: tuple[bytes, bytes] = JSON

    def on_the_wire(self, stamp: bytes = b"", *, close: bool, bodiless: bool = False) -> bytes:
        """The answer with further headers, whole lines; ``bodiless`` for a HEAD request."""
        length = (b"content-length", b"%d" % len(self.body))
        connection = [(b"connection", b"close")] if close else []
        headers = [self.kind, length, *connection, *self.headers]
        head = head_bytes(status_line(self.status), headers, stamp)
        return head if bodiless else head + self.body


def status_line(status: int, phrase: bytes | None = None) -> bytes:
    """The first line of an answer."""
    if phrase is None:
        phrase = HTTPStatus(status).phrase.encode()
    return b"HTTP/1.1 %d %s" % (status, phrase)


def error_body(message: str, kind: str, code: str, param: str | None = None) -> bytes:
    """An error in the shape of OpenAI's API."""
    error = {"message": message, "type": kind, "param": param, "code": code}
    return msgspec.json.encode({"error": error})


def refusal(status: int, message: str, code: str) -> Answer:
    """The client's fault."""
    return Answer(status, error_body(message, "invalid_request_error", code))


def failure(status: int, message: str, code: str) -> Answer:
    """Not the client's fault."""
    return Answer(status, error_body(message, "server_error", code))


def error_event(message: str, code: str) -> bytes:
    """A server-sent event that ends a stream without ``[DONE]``."""
    return b"data: " + error_body(message, "server_error", code) + b"\n\n"


def report(facts: Any, status: int = 200) -> Answer:
    """A JSON value of ours."""
    return Answer(status, msgspec.json.encode(facts))
