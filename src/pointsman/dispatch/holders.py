"""Which replicas hold a block: one bit a replica, 64 replicas a word.

    holders[block, word]     bit k of word w: replica 64 w + k holds the block

A request's blocks form a chain: it can use a block only where all blocks before it are held too.
The longest cached prefix on every replica at once is one AND-walk along the chain.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pointsman.core.compiled import inlined

Holders = NDArray[np.uint64]

REPLICAS_A_WORD = 64

_ONE = np.uint64(1)
_NONE = np.uint64(0)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


def words_for(replicas: int) -> int:
    """How many 64-bit words a block takes in a fleet of that size."""
    return (replicas + REPLICAS_A_WORD - 1) // REPLICAS_A_WORD


def empty_holders(blocks: int, replicas: int) -> Holders:
    """A table in which nobody holds any of ``blocks`` blocks."""
    return np.zeros((blocks, words_for(replicas)), dtype=np.uint64)


@inlined
def visit_chain(  # noqa: PLR0913 - a slice of an array, as compiled code takes it
    holders: Holders, blocks: Any, start: int, stop: int, replica: int, one_word: bool
) -> int:
    """Make the replica hold the chain ``blocks[start:stop]``; how many leading ones it had.

    Without a branch on what it held: a hit is as unpredictable to a processor as to a router.
    ``one_word`` (a constant of the calling kernel) says that the fleet fits one word, so that what
    is read does not depend on the choice and is there before it is made.
    """
    word = np.uint64(0) if one_word else np.uint64(replica >> 6)
    shift = np.uint64(replica & 63)
    alive = _ONE
    held = _NONE
    place = start
    while place < stop:
        block = np.uint64(blocks[place])
        bits = holders[block, word]
        alive &= bits >> shift
        held += alive
        holders[block, word] = bits | (_ONE << shift)
        place += 1
    return np.int64(held)  # type: ignore[return-value]


@inlined
def covered_tokens(held: int, chain_length: int, coverage: tuple[int, int]) -> int:
    """The tokens in the first ``held`` blocks of a chain; ``coverage`` as below."""
    block_tokens, chain_tokens = coverage
    if held == chain_length:
        return chain_tokens
    return held * block_tokens


@inlined
def _set_where(row: Any, first: int, bits: Any, value: float) -> None:
    """row[first + k] = value for every set bit k."""
    for k in range(min(REPLICAS_A_WORD, row.shape[0] - first)):
        if (bits >> np.uint64(k)) & _ONE:
            row[first + k] = value


@inlined
def fill_cached_tokens(  # noqa: PLR0913 - the same slice
    holders: Holders, blocks: Any, start: int, stop: int, coverage: tuple[int, int], row: Any
) -> float:
    """Write into ``row`` how many leading tokens of a chain each replica holds; the most of them.

    ``coverage``: tokens a block, and tokens of the whole chain. A replica is written where it
    drops out of the walk, and all that remain in one go at its end: a prefix that every replica
    of a word holds is written as one slice, without a look at each of them.
    """
    block_tokens, chain_tokens = coverage
    replicas = row.shape[0]
    longest = 0.0
    for word in range(holders.shape[1]):
        first = word * REPLICAS_A_WORD
        last = min(first + REPLICAS_A_WORD, replicas)
        alive = _ALL >> np.uint64(REPLICAS_A_WORD - (last - first))
        all_so_far = start < stop
        if not all_so_far:
            row[first:last] = 0.0
        for place in range(start, stop):
            still = alive & holders[blocks[place], word]
            if still != alive:
                if all_so_far:
                    row[first:last] = 0.0
                    all_so_far = False
                if place > start:
                    held_tokens = float((place - start) * block_tokens)
                    _set_where(row, first, alive ^ still, held_tokens)
                    longest = max(longest, held_tokens)
                alive = still
                if alive == _NONE:
                    break
        if all_so_far:
            row[first:last] = float(chain_tokens)
            longest = float(chain_tokens)
        elif start < stop and alive != _NONE:
            _set_where(row, first, alive, float(chain_tokens))
            longest = float(chain_tokens)
    return longest
