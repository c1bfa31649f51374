"""Asks each replica for its health in the background, on a connection of its own each time."""

from __future__ import annotations

import asyncio

from pointsman.router.health import Health
from pointsman.router.membership import Membership, Replica
from pointsman.router.messages import ResponseHead, head_bytes
from pointsman.router.settings import Probing
from pointsman.router.upstream import (
    OutOfFilesError,
    ReplicaAddress,
    ReplicaError,
    UnreachableError,
)

NOT_READY = 503


class _Status:
    """The Sink of a probe: of its answer only the status counts."""

    def __init__(self) -> None:
        self.code: int | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self, head: ResponseHead) -> None:
        self.code = head.status

    def body(self, piece: bytes, *, is_end: bool) -> None:
        pass

    def end(self, error: ReplicaError | None) -> None:
        if self.ended.done():  # it was given up
            return
        if error is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(error)


class Prober:
    """Probes every replica again and again, one after the other within an interval."""

    def __init__(self, membership: Membership, probing: Probing) -> None:
        self._membership = membership
        self._probing = probing
        self._interval_s = probing.interval_ms / 1000.0
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Watch all members."""
        members = self._membership.members
        for place, replica in enumerate(members):
            self.watch(replica, self._interval_s * place / len(members))

    def watch(self, replica: Replica, delay_s: float = 0.0) -> None:
        """Watch this replica until it is removed."""
        task = asyncio.get_running_loop().create_task(self._watch(replica, delay_s))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        """Ask no more."""
        for task in self._tasks:
            task.cancel()

    async def _watch(self, replica: Replica, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        while not replica.is_removed:
            await probe(replica, self._probing)
            await asyncio.sleep(self._interval_s)


async def probe(replica: Replica, probing: Probing) -> None:
    """Ask once, and tell the replica's health.

    Any answer but a server error will do: an engine without that path says 404, and serves.
    """
    health = replica.health
    try:
        upstream = await replica.pool.open()
    except UnreachableError as error:
        health.cannot_be_reached(error.why)
        return
    except OutOfFilesError:  # nothing is known of the replica by that
        return
    status = _Status()
    why = "closed the connection of a probe"
    try:
        async with asyncio.timeout(probing.answer_ms / 1000.0):
            upstream.exchange(_request(replica.pool.address), status, bodiless=False)
            await status.ended
    except TimeoutError:
        why = f"no answer to a probe in {probing.answer_ms:g} ms"
    except OSError as error:
        why = str(error)
    finally:
        upstream.abort()
    _judge(health, status.code, why)


def _judge(health: Health, status: int | None, why: str) -> None:
    if status is None:
        health.missed_a_probe(why)
    elif status == NOT_READY:
        health.is_not_ready(f"answered a probe with {status}")
    elif status >= 500:
        health.missed_a_probe(f"answered a probe with {status}")
    else:
        health.is_well()


def _request(address: ReplicaAddress) -> bytes:
    headers = [(b"host", address.authority), (b"connection", b"close")]
    return head_bytes(b"GET " + address.base + b"/health HTTP/1.1", headers)
