"""Connections to one target: kept and used again, and as many as there are requests in flight.

No limit stands in the way (gpustack/gpustack issue 1842 shows what an HTTP library's default does).
Engines close idle connections after about 5 s, so one that was idle for 4 s is not used; llama.cpp
closes after every stream without a word, which is seen before the next request or, at the latest,
when that one is lost before any byte of its answer: it is then sent once more, and its row says so.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl

from pointsman.bench.client.connection import Clock, Connection
from pointsman.bench.client.exchange import Exchange
from pointsman.bench.client.rows import ERROR
from pointsman.bench.client.target import Target
from pointsman.core.errors import MachineError

_IDLE_MS = 4_000.0
_OUT_OF = (errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL)  # files, ports: of this machine


class Sender:
    """Sends exchanges to a target; ``open`` it first, and ``close`` it at the end."""

    def __init__(self, target: Target, clock: Clock) -> None:
        self._target = target
        self._clock = clock
        self._idle: list[Connection] = []  # the one that was used last stands last
        self._all: set[Connection] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._address = target.host
        self._tls = ssl.create_default_context() if target.is_tls else None
        self.connects = 0
        self.refused_here = 0  # connections that this machine could not make

    async def open(self) -> None:
        """Look the host up, once. Raises MachineError where it has no address."""
        target = self._target
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise MachineError(f"load client: {target.url}: no such host: {error}") from None
        self._address = str(found[0][4][0])

    def close(self) -> None:
        """Close all connections; what is under way is lost without a word."""
        for task in self._connecting:
            task.cancel()
        for connection in list(self._all):
            connection.abort()
        self._all.clear()
        self._idle.clear()

    def send(self, exchange: Exchange) -> None:
        """Send it on an idle connection, at once, or on a new one, once that is made."""
        connection = self._take_idle()
        if connection is not None:
            exchange.send_on(connection, self._send_anew)
        else:
            self._send_anew(exchange)

    def _send_anew(self, exchange: Exchange) -> None:
        task = asyncio.get_running_loop().create_task(self._connect(exchange))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, exchange: Exchange) -> None:
        loop, target = asyncio.get_running_loop(), self._target
        self.connects += 1
        try:
            _, connection = await loop.create_connection(
                lambda: Connection(self._clock, self._free, self._all.discard),
                self._address,
                target.port,
                ssl=self._tls,
                server_hostname=target.host if self._tls is not None else None,
            )
        except OSError as error:
            self.refused_here += error.errno in _OUT_OF
            exchange.give_up(ERROR, f"no connection: {_why(error)}", self._clock())
            return
        self._all.add(connection)
        if exchange.is_ended:  # given up meanwhile
            self._free(connection)
        else:
            exchange.send_on(connection, self._send_anew)

    def _take_idle(self) -> Connection | None:
        oldest_ms = self._clock() - _IDLE_MS
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and connection.idle_since_ms > oldest_ms:
                return connection
            connection.abort()
        return None

    def _free(self, connection: Connection) -> None:
        connection.idle_since_ms = self._clock()
        self._idle.append(connection)


def _why(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
