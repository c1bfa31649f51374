"""HTTP messages as they pass through, and which of their headers do."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

MAX_HEAD_BYTES = 64 << 10  # of a request's or an answer's head, and of a trailer

Headers = list[tuple[bytes, bytes]]  # names in lower case, in the order of arrival
Fields = dict[bytes, bytes]  # the first value of each header that has one

# A connection's own affairs. Source: RFC 9110, section 7.6.1.
HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"http2-settings",
    )
)


class ClientRequest(msgspec.Struct):
    """A whole request. ``keep_alive``: the client allows another one on its connection."""

    method: bytes
    target: bytes
    headers: Headers
    body: bytes | bytearray  # nobody changes it
    keep_alive: bool
    http_1_1: bool
    fields: Fields = {}
    _path: str | None = None  # once it was asked for

    def __post_init__(self) -> None:
        self._path = None  # it may be another one's copy, with another target
        if not self.fields:
            self.fields = fields_of(self.headers)

    @property
    def has_target(self) -> bool:
        """Whether the target is one: without that, ``path`` and ``origin_form`` raise."""
        if b"#" in self.target:
            return False
        if self.target.startswith(b"/"):
            return True
        try:
            return bool(self.origin_form)
        except ValueError:
            return False

    @property
    def path(self) -> str:
        """The target without its query."""
        if self._path is None:
            self._path = self.origin_form.partition(b"?")[0].decode("latin-1")
        return self._path

    @property
    def origin_form(self) -> bytes:
        """The target as a server expects it: without scheme and host."""
        if self.target.startswith((b"/", b"*")):
            return self.target
        parts = urlsplit(self.target.decode("latin-1"))
        query = f"?{parts.query}" if parts.query else ""
        return f"{parts.path or '/'}{query}".encode("latin-1")

    def header(self, name: bytes) -> bytes | None:
        """The first value of a header; None where it is absent or empty."""
        return self.fields.get(name)


class ResponseHead(msgspec.Struct):
    """Status line and headers of a replica's answer."""

    status: int
    phrase: bytes
    headers: Headers
    fields: Fields


def fields_of(headers: Headers) -> Fields:
    """The first value of each header that has one: an empty value counts as none."""
    fields = dict(reversed(headers))
    if b"" in fields.values():
        return {name: value for name, value in reversed(headers) if value}
    return fields


def all_but(*names: bytes) -> frozenset[bytes]:
    """What ``passing`` is to drop: these, and a connection's own."""
    return HOP_BY_HOP.union(names)


def passing(headers: Headers, fields: Fields, dropped: frozenset[bytes]) -> Headers:
    """The headers without those in ``dropped`` and those that ``Connection`` names."""
    if b"connection" in fields:
        named = (value for name, value in headers if name == b"connection")
        dropped = dropped.union(item.strip().lower() for each in named for item in each.split(b","))
    return [pair for pair in headers if pair[0] not in dropped]


def head_bytes(start_line: bytes, headers: Headers, more: bytes = b"") -> bytes:
    """A message's head on the wire; ``more`` are whole lines."""
    return b"\r\n".join([start_line, *map(b": ".join, headers), more + b"\r\n"])
