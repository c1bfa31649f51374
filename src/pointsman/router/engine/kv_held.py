"""How many tokens a cache holds, by what its engine tells, in a bounded memory.

Of a large cache only a sample of the blocks is kept: those whose mixed hash is below a threshold,
which is halved whenever they become too many (source: P. Flajolet, On adaptive sampling, Computing
43, 1990: a standard error of 1.2 / sqrt(size of the sample), here 4 %). It is not doubled again
while the cache empties, but when it is cleared.

A block counts once, however many copies of it there are and wherever.
"""

from __future__ import annotations

from collections.abc import Iterable

import xxhash

from pointsman.router.engine.kv_messages import BlockHash

SAMPLE_BLOCKS = 1024

_SPREAD = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio, as in dispatch/prefix_table.py
_BITS = 64
_ALL = (1 << _BITS) - 1


class HeldBlocks:
    """The blocks of one cache; what it does not know is as if it were not there."""

    def __init__(self, sample_blocks: int = SAMPLE_BLOCKS) -> None:
        self._most = sample_blocks
        self._copies: dict[int, int] = {}  # by mixed hash
        self._level = 0  # one block in 2 ** level is kept
        self._block_tokens = 0  # the cache's, as it was told last

    def __len__(self) -> int:
        """How many blocks are kept of it."""
        return len(self._copies)

    @property
    def tokens(self) -> int:
        """How many it holds."""
        return self._tokens(len(self._copies))

    def store(self, hashes: Iterable[BlockHash], block_tokens: int) -> int:
        """Blocks came in, or further copies of them; how many tokens are new."""
        self._block_tokens = block_tokens
        new_tokens = 0
        for mixed in self._sampled(hashes):
            copies = self._copies.get(mixed, 0)
            self._copies[mixed] = copies + 1
            if not copies:
                new_tokens += self._tokens(1)
                if len(self._copies) > self._most:
                    self._halve()
        return new_tokens

    def remove(self, hashes: Iterable[BlockHash]) -> int:
        """Copies went away; how many tokens are not there any more, of those that were known."""
        gone = 0
        for mixed in self._sampled(hashes):
            copies = self._copies.pop(mixed, 0)
            if copies > 1:
                self._copies[mixed] = copies - 1
            gone += copies == 1
        return self._tokens(gone)

    def clear(self) -> None:
        """Nothing is there any more."""
        self._copies.clear()
        self._level = 0

    def _sampled(self, hashes: Iterable[BlockHash]) -> Iterable[int]:
        for block in hashes:
            mixed = _mixed(block)
            if mixed >> (_BITS - self._level) == 0:
                yield mixed

    def _halve(self) -> None:
        self._level += 1
        kept = self._copies.items()
        self._copies = {m: copies for m, copies in kept if m >> (_BITS - self._level) == 0}

    def _tokens(self, sampled_blocks: int) -> int:
        return (sampled_blocks * self._block_tokens) << self._level


def _mixed(block: BlockHash) -> int:
    """64 bits of a hash, whose leading ones are as good as random."""
    if isinstance(block, bytes):
        return xxhash.xxh3_64_intdigest(block)
    return ((block ^ (block >> 32)) * _SPREAD) & _ALL
