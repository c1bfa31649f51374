"""Which replica was sent which prefix: block hashes to bits, the least used forgotten.

A replica counts as a holder from the moment a request with the prefix is sent there, as in the
simulator. What an engine has evicted since is not known here, so this is optimistic.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import types

from pointsman.core.compiled import kernel
from pointsman.dispatch.holders import REPLICAS_A_WORD, Holders, empty_holders
from pointsman.workload.workload import Ints

# About 30 MB of table and hashes at 64 replicas or fewer.
MAX_BLOCKS = 1 << 17


@dataclass(frozen=True, slots=True)
class Chain:
    """A prompt's leading whole blocks: a 64-bit hash each, over all text up to the block's end."""

    hashes: Sequence[int] = ()
    block_tokens: int = 1


EMPTY_CHAIN = Chain()

_UNKNOWN = -1

_BITS = types.Array(types.uint64, 2, "C")
_IDS = types.Array(types.int32, 1, "C")


@kernel(types.int64(_BITS, _IDS, types.int64))
def _hold(holders: Any, blocks: Any, replica: int) -> int:
    word = replica // REPLICAS_A_WORD
    bit = np.uint64(1) << np.uint64(replica % REPLICAS_A_WORD)
    for block in blocks:
        holders[block, word] |= bit
    return int(blocks.shape[0])


class PrefixIndex:
    """At most ``max_blocks`` different blocks; the one that was unused longest makes room."""

    def __init__(self, replicas: int, max_blocks: int = MAX_BLOCKS) -> None:
        self.max_blocks = max_blocks
        self._holders = empty_holders(max_blocks, replicas)
        self._ids: OrderedDict[int, int] = OrderedDict()  # the least recently used one first
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._ids)

    def known(self, chain: Chain) -> tuple[Holders, Ints, int]:
        """The table of holders, the leading blocks of the chain that are in it, and tokens of a
        block."""
        return self._holders, self._known(chain), chain.block_tokens

    def hold(self, chain: Chain, replica: int) -> None:
        """Make the replica a holder of the whole chain."""
        hashes = chain.hashes[: self.max_blocks]
        if hashes:
            _hold(self._holders, self._ids_of(hashes), replica)

    def check_invariants(self) -> None:
        """Ids in use and free ids are different and within the table; free ones have no holder."""
        used = set(self._ids.values())
        assert len(used) == len(self._ids) <= self.max_blocks
        assert used.isdisjoint(self._free)
        assert len(used) + len(self._free) <= self.max_blocks

    def _known(self, chain: Chain) -> Ints:
        """The ids of the leading blocks that are in the table."""
        ids = [self._ids.get(block, _UNKNOWN) for block in chain.hashes]
        known = ids.index(_UNKNOWN) if _UNKNOWN in ids else len(ids)
        return np.array(ids[:known], dtype=np.int32)

    def _ids_of(self, hashes: Sequence[int]) -> Ints:
        """The ids of the chain, new ones made where needed, all now the most recently used.

        From the last block to the first, so that a chain is forgotten from its end: a block
        without the ones before it is of no use.
        """
        self._make_room(hashes)
        ids = self._ids
        found = []
        for block in reversed(hashes):
            number = ids.get(block)
            if number is None:
                number = ids[block] = self._free.pop() if self._free else len(ids)
            else:
                ids.move_to_end(block)
            found.append(number)
        return np.array(found[::-1], dtype=np.int32)

    def _make_room(self, hashes: Sequence[int]) -> None:
        ids = self._ids
        if len(ids) + len(hashes) <= self.max_blocks:
            return
        held = [block for block in hashes if block in ids]
        for block in held:
            ids.move_to_end(block)  # not the chain's own blocks
        while len(ids) + len(hashes) - len(held) > self.max_blocks:
            _, number = ids.popitem(last=False)
            self._holders[number] = 0
            self._free.append(number)
