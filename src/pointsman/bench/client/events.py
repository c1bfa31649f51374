"""Server-sent events out of the pieces of a body, wherever these are cut.

Lines end in any of the three ways; comments and fields other than ``data`` are passed over.
Source: WHATWG HTML, server-sent events, "interpreting an event stream".
"""

from __future__ import annotations

_PREFIX = b"data: "
_END = b"\n\n"


class Events:
    """Collects pieces; gives the data of each event that has become whole."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of the events that end in this piece."""
        if not self._rest and _is_one_plain_event(piece):
            return [piece[len(_PREFIX) : -len(_END)]]
        text = self._rest + piece
        if b"\r" in text:
            text = _with_plain_ends(text)
        *events, self._rest = text.split(_END)
        return [data for data in map(_data_of, events) if data]

    def last(self) -> list[bytes]:
        """The data of an event whose blank line never came, at the end of a whole body."""
        rest, self._rest = self._rest, b""
        data = _data_of(rest)
        return [data] if data else []


def _is_one_plain_event(piece: bytes) -> bool:
    """What engines write at once, as a rule."""
    return piece.startswith(_PREFIX) and piece.find(b"\n") == len(piece) - len(_END)


def _with_plain_ends(text: bytes) -> bytes:
    """A carriage return at the very end may be half of an end of line, and stays."""
    held = b"\r" if text.endswith(b"\r") else b""
    whole = text[:-1] if held else text
    return whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n") + held


def _data_of(event: bytes) -> bytes:
    parts = [
        line[5:].removeprefix(b" ") for line in event.splitlines() if line.startswith(b"data:")
    ]
    return b"\n".join(parts)
