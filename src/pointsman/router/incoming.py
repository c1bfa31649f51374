"""What a client's bytes say: whole requests, or why they are refused.

Where a message ends must be beyond doubt. The parser (llhttp without its leniencies) refuses two
lengths, folded lines, bare line feeds and sizes that are no numbers; what it lets pass and we do
not is refused when a head is complete. A refusal ends the connection.
"""

from __future__ import annotations

from typing import Any

import httptools

from pointsman.router.answers import Answer, refusal, report
from pointsman.router.edge import Edge
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

NOT_HTTP = refusal(400, "this is not an HTTP/1.1 request", "not_http")
NO_TARGET = refusal(400, "the request's target is no URL", "invalid_target")
NO_TUNNELS = refusal(405, "CONNECT is not offered", "method_not_allowed")
ALIVE = report({"status": "ok"})

# Anybody may ask whether the router is alive, and whether it is ready; no more than that.
HEALTH = b"/health"
READY = b"/ready"
UI = (
    b"/ui"  # the page itself, which says nothing of anything: what it shows is asked for with a key
)
OUR_PREFIX = b"x-pointsman-"  # what we say of a request; nobody says it to us

_NO_UPGRADE = all_but()  # all that only concerns the connection, the wish for an upgrade too


class Incoming:
    """The receiving side of a client's connection; the requests queue up in whatever derives from
    it."""

    _headers: Headers  # of the head, then of the trailer
    _head: Headers
    _fields: Fields  # of the head
    _is_1_1: bool  # by the head
    _body: bytes | bytearray

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self._is_deaf = False  # what comes in is thrown away
        self._owes_continue = False  # the client waits to be asked for the body
        self._messages = 0
        self._read_bytes = 0  # of the last read
        self._message_bytes = 0  # of the present message, or more
        self._unfinished_bytes = 0  # since a head, a piece of a body or a message was complete
        self._new_message()

    # What derives from it does with what comes.

    def _queue(self, item: ClientRequest | Answer) -> None:
        """Serve it in its turn; an Answer refuses what came."""
        raise NotImplementedError

    @property
    def _is_free(self) -> bool:
        """Whether no request is served or waits."""
        raise NotImplementedError

    def _ask_for_the_body(self) -> None:
        """Tell a client that waits for it to send the body."""
        raise NotImplementedError

    # Bytes.

    def _take_in(self, data: bytes) -> None:
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
            if self._is_free:
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
        if not (is_probe and self._target in (HEALTH, READY, UI)):
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

    def _wants_to_be_asked(self) -> bool:
        """Not by HTTP/1.0; and a head that asks for an upgrade as well is parsed once more."""
        if self._parser.should_upgrade() or not self._is_1_1:
            return False
        return self._fields.get(b"expect", b"").lower() == b"100-continue"

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
