"""Keeps what the router believes of replicas' caches within what their engines say that they hold.

    believed blocks <= held tokens / tokens a block + blocks sent and not told yet

An engine's blocks are of tokens and the router's of text, so they are counted and not compared.
What a block costs is learned from both counts: the tokens that came in over the blocks that were
newly sent. All that fills the cache besides, answers and other routers' prompts, is in the first of
them, and so takes its share of what may be believed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from pointsman.dispatch.prefix_index import PrefixIndex
from pointsman.router.engine.kv_held import HeldBlocks
from pointsman.router.engine.kv_messages import RemovedBlocks, StoredBlocks

# From one token in 16 bytes, longer than the words of most vocabularies, to a byte a token in a
# cache of which a quarter is ours.
LEAST_TOKENS_A_BLOCK, MOST_TOKENS_A_BLOCK = 16.0, 1024.0
# What the assumed size weighs, in blocks, until that many are known of.
ASSUMED_BLOCKS = 64.0

_ELSEWHERE = "REMOTE"  # of a store that several engines share, seen from the publisher


class _Price:
    """Tokens a block: those that came in over the blocks that were sent, of late.

    That is since the cache took in what it holds once over, and at most since it did so twice: what
    it holds now was stored then.
    """

    def __init__(self, assumed_tokens: float) -> None:
        self._assumed = assumed_tokens
        self._before = (0.0, 0.0)  # blocks and tokens
        self._now = (ASSUMED_BLOCKS, ASSUMED_BLOCKS * assumed_tokens)

    @property
    def tokens(self) -> float:
        """What a block takes of the cache."""
        ratio = (self._before[1] + self._now[1]) / (self._before[0] + self._now[0])
        return min(max(ratio, LEAST_TOKENS_A_BLOCK), MOST_TOKENS_A_BLOCK)

    def add(self, blocks: float, tokens: float, held_tokens: int) -> None:
        """Blocks were sent, or tokens came in, of a cache that holds so many."""
        self._now = (self._now[0] + blocks, self._now[1] + tokens)
        once_over = max(held_tokens, ASSUMED_BLOCKS * self._assumed)
        if max(self._now[0] * self._assumed, self._now[1]) > once_over:
            self._before, self._now = self._now, (0.0, 0.0)


@dataclass(slots=True)
class _Account:
    """One replica's cache.

    ``untold``: requests by the number in which they were sent, their new blocks, and how many of
    those no event has told of yet; ``untold_blocks``: the sum of the latter.
    """

    price: _Price
    held: HeldBlocks = field(default_factory=HeldBlocks)
    evicts: bool = False  # a block went that had been told of: the cache is full
    sent: int = 0
    untold: deque[tuple[int, int, float]] = field(default_factory=deque)
    untold_blocks: float = 0.0

    def send(self, new_blocks: int) -> None:
        """A request was sent, with so many blocks that were not taken to be there."""
        self.sent += 1
        if new_blocks:
            self.untold.append((self.sent, new_blocks, float(new_blocks)))
            self.untold_blocks += new_blocks

    def told(self, tokens: int) -> None:
        """So many tokens came in: of those that were sent first, as far as it is known."""
        blocks = tokens / self.price.tokens
        self.price.add(0, tokens, self.held.tokens)
        while blocks > 0.0 and self.untold:
            number, new_blocks, untold = self.untold[0]
            if untold > blocks:
                self.untold[0] = (number, new_blocks, untold - blocks)
                self.untold_blocks -= blocks
                return
            blocks -= untold
            self._leave()

    def wait_only_for(self, in_flight: int) -> None:
        """Of requests before the last so many nothing more is expected to be told."""
        while self.untold and self.untold[0][0] <= self.sent - in_flight:
            self._leave()

    def may_hold(self) -> int:
        """Blocks, at most."""
        return round(self.held.tokens / self.price.tokens + self.untold_blocks)

    def clear(self) -> None:
        """Nothing is known of the cache any more, but what a block takes of it."""
        self.held.clear()
        self.untold.clear()
        self.untold_blocks = 0.0
        self.evicts = False

    def _leave(self) -> None:
        """Its blocks count from here on, when their tokens have been counted."""
        _, new_blocks, untold = self.untold.popleft()
        self.untold_blocks = self.untold_blocks - untold if self.untold else 0.0
        self.price.add(new_blocks, 0, self.held.tokens)


class KvBeliefs:
    """What is told of the replicas' caches, set against what an index believes of them.

    ``in_flight``: how many requests were sent to a replica and have not ended.
    """

    def __init__(
        self, index: PrefixIndex, in_flight: Callable[[int], int], block_tokens: float
    ) -> None:
        self._index = index
        self._in_flight = in_flight
        self._block_tokens = block_tokens
        self._accounts: dict[int, _Account] = {}

    def tokens_a_block(self, replica: int) -> float:
        """What a block of text takes of the replica's cache."""
        return self._of(replica).price.tokens

    def held_tokens(self, replica: int) -> int:
        """What the replica's cache holds, as far as it was told."""
        return self._of(replica).held.tokens

    # What is sent.

    def sent(self, replica: int, new_blocks: int) -> None:
        """A request went there with so many blocks that it was not taken to hold."""
        self._of(replica).send(new_blocks)

    def check(self, replica: int) -> None:
        """Wait no longer to be told of requests that have ended; to be called now and then, for an
        event may come a little after its answer."""
        self._of(replica).wait_only_for(self._in_flight(replica))
        self._correct(replica)

    # What is told.

    def stored(self, replica: int, blocks: StoredBlocks) -> None:
        """Its engine took blocks in."""
        if blocks.locality == _ELSEWHERE:
            return
        account = self._of(replica)
        account.told(account.held.store(blocks.block_hashes, blocks.block_size))

    def removed(self, replica: int, blocks: RemovedBlocks) -> None:
        """Its engine dropped blocks."""
        if blocks.locality == _ELSEWHERE:
            return
        account = self._of(replica)
        if account.held.remove(blocks.block_hashes):
            account.evicts = True
        self._correct(replica)

    def cleared(self, replica: int) -> None:
        """It holds nothing, or nobody knows what."""
        self._of(replica).clear()
        self._index.forget(replica)

    def _of(self, replica: int) -> _Account:
        account = self._accounts.get(replica)
        if account is None:
            account = self._accounts[replica] = _Account(_Price(self._block_tokens))
        return account

    def _correct(self, replica: int) -> None:
        account = self._of(replica)
        if account.evicts:
            self._index.believe_at_most(replica, account.may_hold())
