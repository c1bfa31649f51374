"""Subscribes to what engines publish of their KV caches, and keeps count of what was missed.

zmq frames -> Sequence: is anything missing? -> replay, or ``cleared`` -> events -> callbacks

After every callback it holds: the replica's cache held what was reported stored and not removed.
What cannot be known any more is cleared, never left standing.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from pointsman.core.errors import InputError, MachineError
from pointsman.router.engine.kv_endpoint import KvEndpoint, KvSource, refuse_clashes
from pointsman.router.engine.kv_messages import (
    ClearedBlocks,
    RemovedBlocks,
    StoredBlocks,
    decode_batch,
)
from pointsman.router.engine.kv_sequence import Order, Sequence, SilenceAlarm

EXTRA = "kv-events"
REPLAY_TIMEOUT_S = 1.0
SILENT_AFTER_MS = 30_000.0
_TURN_MESSAGES = 32  # taken at a time before other work has its turn
_NUMBER_BYTES = 8  # big-endian


@dataclass(frozen=True, slots=True)
class KvCallbacks:
    """Who is told, on the event loop; the first argument is the replica.

    ``cleared``: forget all that this replica was said to hold. ``complain`` gets a sentence for
    people, not one a message.
    """

    stored: Callable[[int, StoredBlocks], None]
    removed: Callable[[int, RemovedBlocks], None]
    cleared: Callable[[int], None]
    complain: Callable[[str], None]


@dataclass(slots=True)
class KvCounts:
    """What came of one source so far."""

    messages: int = 0
    events: int = 0
    unknown_events: int = 0  # of kinds that we do not know
    undecodable: int = 0
    gaps: int = 0
    replayed: int = 0  # messages that a replay brought
    restarts: int = 0
    clears: int = 0  # for want of knowledge; not those that the engine told


@dataclass(slots=True)
class _Stream:
    """One source as it is followed."""

    source: KvSource
    counts: KvCounts = field(default_factory=KvCounts)
    sequence: Sequence = field(default_factory=Sequence)


def load_zmq(load: Callable[[str], Any] = importlib.import_module) -> Any:
    """ZeroMQ with its ``asyncio``. Raises InputError, naming the extra, where it is missing."""
    try:
        load("zmq.asyncio")
        return load("zmq")
    except ImportError:
        raise InputError(
            f"KV events: pyzmq is not installed; pip install 'pointsman[{EXTRA}]'"
        ) from None


class KvSubscriber:
    """Follows all sources on the running event loop, from ``start`` to ``stop``."""

    def __init__(
        self,
        sources: Iterable[KvSource],
        callbacks: KvCallbacks,
        clock_ms: Callable[[], float],
        silent_after_ms: float = SILENT_AFTER_MS,
        replay_timeout_s: float = REPLAY_TIMEOUT_S,
    ) -> None:
        """Raises InputError where pyzmq is missing or two sources cannot be told apart."""
        self._zmq = load_zmq()
        self._streams = [_Stream(source) for source in sources]
        refuse_clashes([stream.source for stream in self._streams])
        self._by_replica: dict[int, list[_Stream]] = {}
        for stream in self._streams:
            self._by_replica.setdefault(stream.source.replica, []).append(stream)
        self._callbacks = callbacks
        self._clock_ms = clock_ms
        self._replay_timeout_s = replay_timeout_s
        self._alarm = SilenceAlarm(silent_after_ms)
        self._context: Any = None
        self._tasks: list[asyncio.Task[None]] = []
        self.foreign_messages = 0  # of topics that are nobody's
        self.malformed_messages = 0  # not the three frames: topic, number, payload

    def start(self) -> None:
        """Bind and connect. Raises MachineError where an endpoint cannot be had."""
        self._context = self._zmq.asyncio.Context()
        shared: dict[KvEndpoint, list[_Stream]] = {}
        for stream in self._streams:
            shared.setdefault(stream.source.endpoint, []).append(stream)
        try:
            sockets = [(self._socket(endpoint, of), of) for endpoint, of in shared.items()]
        except MachineError:
            self._context.destroy(linger=0)
            raise
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._follow(socket, of)) for socket, of in sockets]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Close everything."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        if self._context is not None:
            self._context.destroy(linger=0)

    def computed(self, replica: int, tokens: int) -> None:
        """Say that a request computed so many tokens there, so that silence can be noticed.

        Those are its uncached prompt and its output; few of them may fill no block, and do not
        count.
        """
        streams = self._streams_of(replica)
        if streams and self._alarm.computed(replica, tokens, self._clock_ms()):
            endpoints = sorted({stream.source.endpoint.address for stream in streams})
            self._callbacks.complain(
                f"KV events: replica {replica} computes tokens and publishes nothing to"
                f" {', '.join(endpoints)}; see that one side binds and the other connects"
            )

    def is_silent(self, replica: int) -> bool:
        """Whether the alarm stands: tokens flowed for a while, and no event has come since."""
        return replica in self._alarm.silent

    def forget(self, replica: int) -> None:
        """Start anew with a replica that was away: it may have come back with an empty cache."""
        for stream in self._streams_of(replica):
            stream.sequence = Sequence()
        self._callbacks.cleared(replica)

    def counts(self, replica: int) -> list[KvCounts]:
        """What came of each of the replica's sources."""
        return [stream.counts for stream in self._streams_of(replica)]

    def _streams_of(self, replica: int) -> list[_Stream]:
        return self._by_replica.get(replica, [])

    # Sockets.

    def _socket(self, endpoint: KvEndpoint, streams: list[_Stream]) -> Any:
        socket = self._new_socket(self._zmq.SUB, endpoint)
        for stream in streams:
            socket.subscribe(stream.source.topic or "")
        try:
            (socket.bind if endpoint.binds else socket.connect)(endpoint.address)
        except self._zmq.ZMQError as error:
            what = "bind" if endpoint.binds else "connect to"
            raise MachineError(
                f"KV events: cannot {what} {endpoint.address}: {error.strerror}"
            ) from error
        return socket

    def _new_socket(self, kind: int, endpoint: KvEndpoint) -> Any:
        socket = self._context.socket(kind)
        if "[" in endpoint.address:
            socket.setsockopt(self._zmq.IPV6, 1)
        return socket

    async def _follow(self, socket: Any, streams: list[_Stream]) -> None:
        taken = 0
        while True:
            frames = await socket.recv_multipart()
            await self._take(frames, streams)
            taken += 1
            if taken % _TURN_MESSAGES == 0:
                await asyncio.sleep(0)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._callbacks.complain(f"KV events: no longer followed: {task.exception()!r}")

    async def _take(self, frames: list[bytes], streams: list[_Stream]) -> None:
        if len(frames) != 3 or len(frames[1]) != _NUMBER_BYTES:
            self.malformed_messages += 1
            return
        topic, number, payload = frames
        for stream in streams:
            # ZeroMQ matches topics by their beginning: kv@1 gets what is for kv@10.
            if stream.source.topic is None or stream.source.topic.encode() == topic:
                await self._next(stream, int.from_bytes(number, "big"), payload)
                return
        self.foreign_messages += 1

    # One stream.

    async def _next(self, stream: _Stream, number: int, payload: bytes) -> None:
        stream.counts.messages += 1
        order = stream.sequence.order_of(number)
        if order is Order.FIRST:
            await self._fill(stream, 0, number, clears=False)
        elif order is Order.RESTARTED:
            stream.counts.restarts += 1
            self._clear(stream)
            await self._fill(stream, 0, number, clears=False)
        elif order is Order.AFTER_A_GAP:
            stream.counts.gaps += 1
            await self._fill(stream, stream.sequence.expected or 0, number, clears=True)
        stream.sequence.passed(number)
        self._apply(stream, payload)

    async def _fill(self, stream: _Stream, start: int, end: int, *, clears: bool) -> None:
        """Catch up with the messages in [start, end), as far as they can still be had.

        ``clears``: where some are missing for good, what stood before them is not known any more.
        What comes after those can be told in any case.
        """
        if start == end:
            return
        missed = await self._replay(stream.source, start, end)
        if clears and len(missed) < end - start:
            self._clear(stream)
        stream.counts.replayed += len(missed)
        for payload in missed:
            self._apply(stream, payload)

    def _apply(self, stream: _Stream, payload: bytes) -> None:
        replica = stream.source.replica
        try:
            batch = decode_batch(payload)
        except InputError as error:
            self._complain_once(stream, str(error))
            stream.counts.undecodable += 1
            self._clear(stream)
            return
        self._alarm.heard(replica)
        stream.counts.events += len(batch.events)
        stream.counts.unknown_events += batch.unknown
        for event in batch.events:
            if isinstance(event, StoredBlocks):
                self._callbacks.stored(replica, event)
            elif isinstance(event, RemovedBlocks):
                self._callbacks.removed(replica, event)
            else:
                assert isinstance(event, ClearedBlocks)
                self._callbacks.cleared(replica)

    def _clear(self, stream: _Stream) -> None:
        stream.counts.clears += 1
        self._callbacks.cleared(stream.source.replica)

    def _complain_once(self, stream: _Stream, what: str) -> None:
        if not stream.counts.undecodable:
            self._callbacks.complain(f"replica {stream.source.replica}: {what}")

    # Replay.

    async def _replay(self, source: KvSource, start: int, end: int) -> list[bytes]:
        """The payloads of [start, end) without those that are lost, up to the last one lost."""
        if source.replay is None:
            return []
        socket = self._new_socket(self._zmq.DEALER, source.replay)
        found: dict[int, bytes] = {}
        try:
            socket.connect(source.replay.address)
            async with asyncio.timeout(self._replay_timeout_s):
                # The publisher's ROUTER takes an empty frame and the first number that is wanted.
                await socket.send_multipart((b"", start.to_bytes(_NUMBER_BYTES, "big")))
                await _receive_until(socket, end, found)
        except (TimeoutError, self._zmq.ZMQError):
            pass  # what came counts
        finally:
            socket.close(linger=0)
        first = end
        while first - 1 in found and first > start:
            first -= 1
        return [found[number] for number in range(first, end)]


async def _receive_until(socket: Any, end: int, found: dict[int, bytes]) -> None:
    """Collect replayed messages by number; an empty payload ends a replay.

    Number and payload are the last frames; newer vLLM has the topic before them.
    """
    while True:
        frames = await socket.recv_multipart()
        if len(frames) < 2 or not frames[-1]:
            return
        number, payload = int.from_bytes(frames[-2], "big"), frames[-1]
        found[number] = payload
        if number >= end - 1:
            return
