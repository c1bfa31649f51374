"""HTTP messages as they pass through, and which of their headers do."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from urllib.parse import urlsplit

MAX_HEAD_BYTES = 64 << 10  # of a request's or an answer's head, and of a trailer

Headers = list[tuple[bytes, bytes]]  # names in lower case, in the order of arrival

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


@dataclass(slots=True)
class ClientRequest:
    """A whole request. ``keep_alive``: the client allows another one on its connection."""

    method: bytes
    target: bytes
    headers: Headers
    body: bytes | bytearray  # nobody changes it
    keep_alive: bool
    http_1_1: bool
    _path: str | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def has_target(self) -> bool:
        """Whether the target is one: without that, ``path`` and ``origin_form`` raise."""
        if b"#" in self.target:
            return False
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
        return header_of(self.headers, name)


@dataclass(slots=True)
class ResponseHead:
    """Status line and headers of a replica's answer."""

    status: int
    phrase: bytes
    headers: Headers


def header_of(headers: Headers, name: bytes) -> bytes | None:
    """The first value of a header; None where it is absent or empty."""
    for key, value in headers:
        if key == name and value:
            return value
    return None


def forwarded(headers: Headers, dropped: Set[bytes]) -> Headers:
    """The headers without a connection's own, those it names, and those in ``dropped``."""
    named = [value for key, value in headers if key == b"connection"]
    if named:
        dropped = dropped | {item.strip().lower() for each in named for item in each.split(b",")}
    return [pair for pair in headers if pair[0] not in HOP_BY_HOP and pair[0] not in dropped]


def head_bytes(start_line: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A message's head on the wire."""
    lines = [b": ".join(pair) for pair in headers]
    return b"\r\n".join([start_line, *lines, b"", b""])
