"""A short exchange of the router's own with a replica: its whole answer, within a limit of time."""

from __future__ import annotations

import asyncio

from pointsman.router.flow import Signal
from pointsman.router.messages import ResponseHead
from pointsman.router.pool import Pool
from pointsman.router.upstream import ReplicaError, StaleConnectionError, Upstream

MOST_BYTES = 16 << 20  # of an answer that is of use here


class WholeAnswer:
    """The Sink of one exchange. ``is_late``: it was given up because it took too long."""

    def __init__(self) -> None:
        self.head: ResponseHead | None = None
        self.is_late = False
        self.over = Signal()
        self._pieces: list[bytes] = []
        self._bytes = 0

    @property
    def content(self) -> bytes:
        """Its body; nothing of one that is too long."""
        return b"".join(self._pieces) if self._bytes <= MOST_BYTES else b""

    @property
    def status(self) -> int:
        """Of an answer that has ended."""
        return 0 if self.head is None else self.head.status

    def begin(self, head: ResponseHead) -> None:
        """Take the head."""
        self.head = head

    def body(self, piece: bytes, *, is_end: bool) -> None:
        """Keep some of the body."""
        self._bytes += len(piece)
        if self._bytes <= MOST_BYTES:
            self._pieces.append(piece)

    def end(self, error: ReplicaError | None) -> None:
        """Let whoever waits for it go on."""
        self.over.give(error)


async def whole_answer(pool: Pool, request: bytes, limit_ms: float | None = None) -> WholeAnswer:
    """What the replica answers, by a connection that is there. Raises ReplicaError."""
    upstream = pool.idle_one() or await pool.connect()
    try:
        return await _exchanged(upstream, request, limit_ms)
    except StaleConnectionError:
        pool.release(upstream)
        upstream = await pool.connect()
        return await _exchanged(upstream, request, limit_ms)
    finally:
        pool.release(upstream)


async def _exchanged(upstream: Upstream, request: bytes, limit_ms: float | None) -> WholeAnswer:
    answer = WholeAnswer()
    timer: asyncio.TimerHandle | None = None

    def give_up() -> None:
        answer.is_late = True
        upstream.cut_off(f"took longer than {limit_ms:g} ms")

    if limit_ms is not None:
        timer = asyncio.get_running_loop().call_later(limit_ms / 1000.0, give_up)
    try:
        upstream.exchange(request, answer, bodiless=False)
        await answer.over
    except ReplicaError:
        if answer.is_late:
            return answer
        raise
    finally:
        if timer is not None:
            timer.cancel()
    return answer
