"""What is written in one turn of the event loop, sent at its end.

A write wakes the process that reads it, which costs the writer more than all else about the write
where the reader was asleep. Between writes that are apart by the work for one request it falls
asleep again; a turn's writes one after the other find it awake. Where one request is served at a
time there is nothing to wait for, and its bytes go at once.

    sender.write(...)   of whoever has bytes    ->   Outbox, once a turn   ->   the transports
"""

from __future__ import annotations

import asyncio


class Outbox:
    """The senders with something to send; common to all connections of a router.

    ``served``: requests that are being served now, counted by whoever serves them.
    """

    def __init__(self) -> None:
        self.served = 0
        self._senders: list[Sender] = []

    def add(self, sender: Sender) -> None:
        """Let it send at the end of this turn."""
        if not self._senders:
            asyncio.get_running_loop().call_soon(self._empty)
        self._senders.append(sender)

    def _empty(self) -> None:
        senders, self._senders = self._senders, []
        for sender in senders:
            sender.flush()


class Sender:
    """The sending side of one connection."""

    __slots__ = ("_outbox", "_transport", "_unsent")

    def __init__(self, transport: asyncio.Transport, outbox: Outbox) -> None:
        self._transport = transport
        self._outbox = outbox
        self._unsent = b""

    def write(self, data: bytes) -> None:
        """Send this soon."""
        if self._unsent:
            self._unsent += data
        elif self._outbox.served <= 1:
            if not self._transport.is_closing():
                self._transport.write(data)
        else:
            self._unsent = data
            self._outbox.add(self)

    def flush(self) -> None:
        """Send now what waits; after the connection's end, nothing."""
        data, self._unsent = self._unsent, b""
        if data and not self._transport.is_closing():
            self._transport.write(data)

    @property
    def is_closing(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._transport.is_closing()

    @property
    def unsent_bytes(self) -> int:
        """What the other side has not taken yet."""
        return len(self._unsent) + self._transport.get_write_buffer_size()

    def close(self) -> None:
        """Send what waits, then close."""
        self.flush()
        self._transport.close()

    def write_eof(self) -> None:
        """Send what waits, and that nothing follows."""
        self.flush()
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def abort(self) -> None:
        """Close at once."""
        self._unsent = b""
        self._transport.abort()
