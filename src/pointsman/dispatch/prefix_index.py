"""Which replica was sent which prefix: block hashes to bits, the least used forgotten.

A replica counts as a holder from the moment a request with the prefix is sent there, as in the
simulator. What an engine has evicted since is not known here, so this is optimistic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pointsman.core.checks import check_integer
from pointsman.core.handles import handle_of
from pointsman.dispatch.holders import REPLICAS_A_WORD, words_for
from pointsman.dispatch.prefix_table import (
    MAX_BLOCKS,
    Table,
    bytes_a_block,
    empty_table,
    fill,
    hold,
    move,
)
from pointsman.workload.workload import Floats

# 1,048,576 blocks on 64 replicas or fewer; at 64 tokens a block as many tokens as 64 GPUs hold that
# have room for a million each.
DEFAULT_INDEX_BYTES = 32 << 20
LEAST_INDEX_BYTES = 64
MOST_INDEX_BYTES = 32 << 30


@dataclass(frozen=True, slots=True)
class Chain:
    """A prompt's leading whole blocks: a 64-bit hash each, over all text up to the block's end."""

    hashes: Sequence[int] = ()
    block_tokens: int = 1


EMPTY_CHAIN = Chain()


class PrefixIndex:
    """At most ``max_bytes`` of blocks; the one that was unused longest makes room.

    Raises InputError for a bound that is no number of bytes in LEAST_INDEX_BYTES..MOST_INDEX_BYTES.
    """

    def __init__(self, replicas: int, max_bytes: int = DEFAULT_INDEX_BYTES) -> None:
        check_integer(
            "prefix index", "max_bytes", max_bytes, LEAST_INDEX_BYTES, most=MOST_INDEX_BYTES
        )
        self.replicas = replicas
        self.max_bytes = max_bytes
        self._table = self._new_table()
        self._handle = handle_of(self._table)
        # Looked up once: both are called for every request.
        self._fill, self._hold = fill.dispatcher, hold.dispatcher

    def __len__(self) -> int:
        return int(self._table.used[0])

    @property
    def max_blocks(self) -> int:
        """How many blocks the bound allows."""
        return int(self._table.entries.shape[0]) - 1

    @property
    def size_bytes(self) -> int:
        """What the blocks take once all of them are in use."""
        return self.max_blocks * bytes_a_block(self.replicas)

    def fill(self, chain: Chain, row: Floats) -> None:
        """Write into ``row`` how many leading tokens of the chain each replica holds."""
        self._fill(self._handle, _array(chain.hashes), chain.block_tokens, row)

    def hold(self, chain: Chain, replica: int) -> None:
        """Make the replica a holder of the whole chain, as far as the index has room for it."""
        self._hold(self._handle, _array(chain.hashes[: self.max_blocks]), replica)

    def forget(self, replica: int) -> None:
        """The replica holds nothing any more: it was started anew, or is another one now."""
        word, bit = divmod(replica, REPLICAS_A_WORD)
        self._table.holders[: len(self), word] &= ~(np.uint64(1) << np.uint64(bit))

    def add_replica(self) -> int:
        """The number of a new replica, which holds nothing.

        Every 64th one makes each block larger; those that were unused longest make room for that.
        """
        replica = self.replicas
        self.replicas += 1
        if words_for(self.replicas) > words_for(replica):
            table = self._new_table()
            handle = handle_of(table)
            move(self._handle, handle)
            self._table, self._handle = table, handle
        return replica

    def check_invariants(self) -> None:
        """Every block in use is found once by its hash, and stands in the ring of uses once."""
        entries, holders, slots, _ = self._table
        used = entries[: len(self)]
        assert sorted((slots[slots > 0] - 1).tolist()) == list(range(len(self)))
        assert len(set(used["hash"].tolist())) == len(self) <= self.max_blocks
        ring, number = [], int(entries["newer"][self.max_blocks])
        while number != self.max_blocks:
            ring.append(number)
            assert int(entries["newer"][entries["older"][number]]) == number
            number = int(entries["newer"][number])
        assert sorted(ring) == list(range(len(self)))
        assert not holders[len(self) :].any()
        assert self.size_bytes <= self.max_bytes

    def _new_table(self) -> Table:
        blocks = min(self.max_bytes // bytes_a_block(self.replicas), MAX_BLOCKS)
        return empty_table(max(1, blocks), self.replicas)


def _array(hashes: Sequence[int]) -> NDArray[Any]:
    return np.array(hashes, dtype=np.uint64)
