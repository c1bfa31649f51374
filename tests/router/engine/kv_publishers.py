"""A stand-in for an engine's publisher of KV events, and an index that listens.

The publisher's frames, its replay and its binding rule are those described in
vllm-project/vllm, vllm/distributed/kv_events.py; SGLang's, in
python/sglang/srt/disaggregation/kv_events.py, are the same. Newer versions of both (0.32 and
0.5.23) put the topic before the number in what is replayed; a ``replay`` of "newer" does so too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec
import zmq
import zmq.asyncio

from pointsman.router.engine.kv_events import KvCallbacks, KvSubscriber
from pointsman.router.engine.kv_messages import RemovedBlocks, StoredBlocks

DEADLINE_S = 10
END = (-1).to_bytes(8, "big", signed=True)


def stored(*hashes: int, parent: int | None = None) -> list[Any]:
    """As an array; two tokens a block."""
    return ["BlockStored", list(hashes), parent, [1] * 2 * len(hashes), 2, None]


def removed(*hashes: int) -> list[Any]:
    return ["BlockRemoved", list(hashes)]


CLEARED = ["AllBlocksCleared"]


def packed(*events: Any) -> bytes:
    return msgspec.msgpack.encode([1762031045.5, list(events)])


class Publisher:
    """Publishes where it is told to; ``miss`` counts a message that never leaves it."""

    def __init__(self, endpoint: str, topic: str = "", replay: str | None = None) -> None:
        self._context = zmq.asyncio.Context()
        # An XPUB publishes as a PUB does, and hears who subscribes.
        self._socket = self._context.socket(zmq.XPUB)
        if "*" in endpoint:
            port = self._socket.bind_to_random_port("tcp://127.0.0.1")
            self.address = f"tcp://127.0.0.1:{port}"
        else:
            self._socket.connect(endpoint)
        self._topic = topic.encode()
        self._number = 0
        self.kept: list[tuple[int, bytes]] = []
        self.asked: list[int] = []
        self._before: tuple[bytes, ...] = (self._topic,) if replay == "newer" else ()
        self._replayer: asyncio.Task | None = None
        if replay is not None:
            router = self._context.socket(zmq.ROUTER)
            self.replay = f"tcp://127.0.0.1:{router.bind_to_random_port('tcp://127.0.0.1')}"
            self._replayer = asyncio.get_running_loop().create_task(self._serve(router))

    async def subscribed(self) -> None:
        async with asyncio.timeout(DEADLINE_S):
            assert (await self._socket.recv())[:1] == b"\x01"

    async def publish(self, *events: Any) -> None:
        await self.send(packed(*events))

    async def send(self, payload: bytes) -> None:
        number = self.miss(payload)
        await self._socket.send_multipart((self._topic, number.to_bytes(8, "big"), payload))

    def miss(self, payload: bytes) -> int:
        number = self._number
        self._number += 1
        self.kept.append((number, payload))
        return number

    def restart(self) -> None:
        self._number = 0
        self.kept.clear()

    async def _serve(self, router: Any) -> None:
        while True:
            client, empty, start = await router.recv_multipart()
            assert empty == b""
            self.asked.append(int.from_bytes(start, "big"))
            for number, payload in list(self.kept):
                if number >= self.asked[-1]:
                    frames = (client, b"", *self._before, number.to_bytes(8, "big"), payload)
                    await router.send_multipart(frames)
            end = [b""] * len(self._before)
            await router.send_multipart((client, b"", *end, END, b""))

    async def close(self) -> None:
        if self._replayer is not None:
            self._replayer.cancel()
            await asyncio.gather(self._replayer, return_exceptions=True)
        self._context.destroy(linger=0)


class Index:
    """What each replica is said to hold, and all that was said."""

    def __init__(self) -> None:
        self.held: dict[int, set[Any]] = {}
        self.said: list[tuple[Any, ...]] = []
        self.complaints: list[str] = []

    def callbacks(self) -> KvCallbacks:
        return KvCallbacks(self._stored, self._removed, self._cleared, self.complaints.append)

    def _stored(self, replica: int, blocks: StoredBlocks) -> None:
        self.said.append(("stored", replica, *blocks.block_hashes))
        self.held.setdefault(replica, set()).update(blocks.block_hashes)

    def _removed(self, replica: int, blocks: RemovedBlocks) -> None:
        self.said.append(("removed", replica, *blocks.block_hashes))
        self.held.setdefault(replica, set()).difference_update(blocks.block_hashes)

    def _cleared(self, replica: int) -> None:
        self.said.append(("cleared", replica))
        self.held[replica] = set()


async def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s, "it did not come"
        await asyncio.sleep(0.001)


async def heard(subscriber: KvSubscriber, replica: int, messages: int) -> None:
    """Wait until so many messages of a replica were dealt with."""
    await until(lambda: sum(c.messages for c in subscriber.counts(replica)) >= messages)
    await asyncio.sleep(0.0)
