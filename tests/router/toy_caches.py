"""Toy engines behind a router: a cache of tokens each, least recently used out, told over ZeroMQ.

It is no engine: it answers at once and in whole. Its tokens are of three bytes, so that the
router's guess of four is wrong, and answers take their place in its cache.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass, field

from tests.router.engine.kv_publishers import Publisher
from tests.router.fake_replicas import FakeRequest, Wire, sized

BYTES_A_TOKEN = 3
BLOCK_TOKENS = 16
ANSWER_BLOCKS = 2


@dataclass
class ToyCache:
    """Chains of blocks; a prompt loses its end first."""

    most_blocks: int
    blocks: OrderedDict[int, None] = field(default_factory=OrderedDict)
    computed: int = 0

    def serve(self, prompt: bytes) -> tuple[int, list[int], list[int]]:
        """Cached tokens, and the blocks that came and that went."""
        piece = BYTES_A_TOKEN * BLOCK_TOKENS
        ends = range(piece, len(prompt) + 1, piece)
        chain = [hash(prompt[:end]) for end in ends]
        cached = next((n for n, block in enumerate(chain) if block not in self.blocks), len(chain))
        self.computed += 1
        chain += [hash((id(self), self.computed, n)) for n in range(ANSWER_BLOCKS)]
        came = [block for block in chain if block not in self.blocks]
        for block in reversed(chain):
            self.blocks[block] = None
            self.blocks.move_to_end(block)
        went = [self.blocks.popitem(last=False)[0] for _ in range(len(self) - self.most_blocks)]
        return cached * BLOCK_TOKENS, came, went

    def __len__(self) -> int:
        return len(self.blocks)


@dataclass
class ToyEngine:
    """A script of a fake replica. ``publisher`` None: it tells nothing."""

    cache: ToyCache
    publisher: Publisher | None = None

    async def __call__(self, request: FakeRequest, wire: Wire) -> None:
        prompt = json.loads(request.body)["prompt"].encode()
        cached, came, went = self.cache.serve(prompt)
        if self.publisher is not None:
            await self.publisher.publish(*self._events(came, went))
        usage = {
            "prompt_tokens": -(-len(prompt) // BYTES_A_TOKEN),
            "completion_tokens": ANSWER_BLOCKS * BLOCK_TOKENS,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        await wire.send(sized(json.dumps({"choices": [{"text": "ok"}], "usage": usage}).encode()))

    @staticmethod
    def _events(came: list[int], went: list[int]) -> list[object]:
        events: list[object] = [["BlockRemoved", went]] if went else []
        if came:
            tokens = [0] * BLOCK_TOKENS * len(came)
            events.append(["BlockStored", came, None, tokens, BLOCK_TOKENS, None])
        return events
