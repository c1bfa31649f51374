"""HTTP/1.1 requests as RFC 9112 defines them, read from whole bytes and without mercy.

A second implementation, to hold the router's against: what the router passes on must be what this
one reads, in the same order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

REQUEST_LINE = re.compile(rb"([A-Z-]+) +([\x21-\x7e]+) +HTTP/1\.([01])")
FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([\t\x20-\x7e\x80-\xff]*?)[ \t]*")
SIZE = re.compile(rb"([0-9A-Fa-f]{1,32})(;[\t\x20-\x7e\x80-\xff]*)?")


class NotCertainError(Exception):
    """What follows is no request, or not yet a whole one."""


@dataclass
class Strict:
    method: bytes
    target: bytes
    body: bytes


def requests_in(data: bytes) -> list[Strict]:
    """The requests at the beginning of the bytes, up to the first doubt."""
    found: list[Strict] = []
    reading = _Reading(data)
    try:
        while reading.is_open:
            found.append(reading.request())
    except NotCertainError:
        pass
    return found


class _Reading:
    def __init__(self, data: bytes) -> None:
        self.left = data
        self.is_open = True

    def request(self) -> Strict:
        self.left = self.left.lstrip(b"\r\n")  # section 2.2
        line = REQUEST_LINE.fullmatch(self.line())
        if line is None or line[1] == b"CONNECT" or b"#" in line[2]:
            raise NotCertainError
        is_1_1 = line[3] == b"1"
        fields = self.fields()
        if self.count(fields, b"host") > 1:
            raise NotCertainError
        body = self.body(fields, is_1_1)
        values = [value.lower().split(b",") for name, value in fields if name == b"connection"]
        closes = any(option.strip() == b"close" for value in values for option in value)
        self.is_open = is_1_1 and not closes
        return Strict(line[1], line[2], body)

    def body(self, fields: list[tuple[bytes, bytes]], is_1_1: bool) -> bytes:
        codings = [value.lower() for name, value in fields if name == b"transfer-encoding"]
        lengths = [value for name, value in fields if name == b"content-length"]
        if codings:
            if codings != [b"chunked"] or lengths or not is_1_1:
                raise NotCertainError
            return self.chunks()
        if not lengths:
            return b""
        if len(lengths) > 1 or not re.fullmatch(rb"[0-9]+", lengths[0]):
            raise NotCertainError
        return self.take(int(lengths[0]))

    def chunks(self) -> bytes:
        body = b""
        while True:
            size = SIZE.fullmatch(self.line())
            if size is None:
                raise NotCertainError
            length = int(size[1], 16)
            if not length:
                self.fields()  # trailers
                return body
            body += self.take(length)
            if self.line():
                raise NotCertainError

    def fields(self) -> list[tuple[bytes, bytes]]:
        found = []
        while line := self.line():
            field = FIELD.fullmatch(line)
            if field is None:
                raise NotCertainError
            found.append((field[1].lower(), field[2]))
        return found

    def line(self) -> bytes:
        line, end, self.left = self.left.partition(b"\r\n")
        if not end or b"\r" in line or b"\n" in line:
            raise NotCertainError
        return line

    def take(self, length: int) -> bytes:
        if len(self.left) < length:
            raise NotCertainError
        taken, self.left = self.left[:length], self.left[length:]
        return taken

    @staticmethod
    def count(fields: list[tuple[bytes, bytes]], wanted: bytes) -> int:
        return sum(name == wanted for name, _ in fields)
