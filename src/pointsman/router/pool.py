"""The connections to one replica: kept, used again, given up, and watched for silence."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from errno import EMFILE, ENFILE

from pointsman.router.health import Health
from pointsman.router.outbox import Outbox
from pointsman.router.settings import Timeouts
from pointsman.router.upstream import (
    OutOfFilesError,
    ReplicaAddress,
    UnreachableError,
    Upstream,
)

# llama.cpp and uvicorn close a connection that was idle for 5 s; do not race them.
IDLE_LIMIT_S = 4.0

Connect = Callable[[ReplicaAddress], Awaitable[Upstream]]


async def connect_over_tcp(address: ReplicaAddress, outbox: Outbox | None = None) -> Upstream:
    """A new connection. Raises OSError where none can be made."""
    loop = asyncio.get_running_loop()
    _, made = await loop.create_connection(
        lambda: Upstream(address, outbox), address.host, address.port
    )
    return made


class Pool:
    """As many connections as requests in flight, the last used one first.

    ``health`` is told of every connect; ``check`` is to be called again and
    again, and ends what has been silent for too long.
    """

    def __init__(
        self,
        address: ReplicaAddress,
        timeouts: Timeouts,
        health: Health,
        connect: Connect = connect_over_tcp,
    ) -> None:
        self.address = address
        self.stamp = b"x-pointsman-replica: %b\r\n" % address.url.encode()
        self.connects = 0  # of requests
        self._timeouts = timeouts
        self._health = health
        self._connect = connect
        self.idle: list[Upstream] = []  # to be used again
        self._busy: set[Upstream] = set()
        self._connecting: dict[asyncio.Timeout, float] = {}  # and when each began

    def idle_one(self) -> Upstream | None:
        """A connection for one exchange that was used before; None where there is none."""
        now_s = time.monotonic()
        while self.idle:
            upstream = self.idle.pop()
            if upstream.is_kept and now_s - upstream.idle_since_s <= IDLE_LIMIT_S:
                self._busy.add(upstream)
                return upstream
            upstream.abort()
        return None

    async def connect(self) -> Upstream:
        """A new connection for one exchange.

        Raises UnreachableError where none can be made, OutOfFilesError where that is our own fault.
        """
        self.connects += 1
        try:
            made = await self.open()
        except UnreachableError as error:
            self._health.cannot_be_reached(error.why)
            raise
        self._health.was_reached()
        self._busy.add(made)
        return made

    async def open(self) -> Upstream:
        """A new connection that is the caller's own; nobody's health changes. Raises as that."""
        making = asyncio.get_running_loop().create_task(
            self._open()
        )  # a limit of time wants a task
        try:
            return await making
        except asyncio.CancelledError:
            if making.done() and not making.cancelled() and not making.exception():
                making.result().abort()  # it came too late
            raise

    async def _open(self) -> Upstream:
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._connecting[limit] = time.monotonic()
                return await self._connect(self.address)
        except OSError as error:  # TimeoutError is one
            if limit.expired():
                why = f"takes no connection in {self._timeouts.connect_ms:g} ms"
                raise UnreachableError(self.address.url, why, http_status=504) from error
            if error.errno in (EMFILE, ENFILE):
                raise OutOfFilesError(self.address.url) from error
            raise UnreachableError(self.address.url, error.strerror or str(error)) from error
        finally:
            self._connecting.pop(limit, None)

    def release(self, upstream: Upstream) -> None:
        """Take a connection back; one in the middle of an exchange is given up."""
        self._busy.discard(upstream)
        upstream.resume()
        if upstream.reusable:
            upstream.idle_since_s = time.monotonic()
            self.idle.append(upstream)
        else:
            upstream.abort()

    def check(self, now_s: float) -> None:
        """End connects and exchanges that have been silent for too long, and forget idle
        connections that will not be used again."""
        longest_s = self._timeouts.connect_ms / 1000.0
        for limit, began_s in self._connecting.items():
            if now_s - began_s >= longest_s and limit.when() is None:
                limit.reschedule(now_s)
        for upstream in list(self._busy):
            upstream.check(now_s, self._timeouts)
        while self.idle:
            oldest = self.idle[0]
            if oldest.is_kept and now_s - oldest.idle_since_s <= IDLE_LIMIT_S:
                break
            self.idle.pop(0).abort()

    def close(self) -> None:
        """Give up the idle connections."""
        while self.idle:
            self.idle.pop().abort()

    def cut_off(self) -> None:
        """Give up all connections: exchanges end as if the replica had gone."""
        self.close()
        for upstream in list(self._busy):
            upstream.cut_off("was removed")
