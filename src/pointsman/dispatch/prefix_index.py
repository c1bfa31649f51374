"""Which replica was sent which prefix: block hashes to bits, the least used forgotten.

A replica counts as a holder from the moment a request with the prefix is sent there, as in the
simulator. What an engine has evicted since is not known here, so this is optimistic, but for
replicas that are ``followed``: somebody is told how much those hold, and says so.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pointsman.core.checks import check_integer
from pointsman.core.handles import Handle, handle_of
from pointsman.dispatch.holders import REPLICAS_A_WORD, words_for
from pointsman.dispatch.prefix_table import (
    MAX_BLOCKS,
    Table,
    bytes_a_block,
    check_table,
    clear_table,
    empty_table,
    fill,
    give_up,
    hold,
    move,
    use_at,
)
from pointsman.workload.workload import Floats

# 1,048,576 blocks on 64 replicas or fewer; at 64 tokens a block as many tokens as 64 GPUs hold that
# have room for a million each.
DEFAULT_INDEX_BYTES = 32 << 20
LEAST_INDEX_BYTES = 64
MOST_INDEX_BYTES = 32 << 30
MOST_GIVEN_UP = 2048  # blocks: about a millisecond


class Chain:
    """A prompt's leading whole blocks: a 64-bit hash each, over all text up to the block's end.

    Nobody changes ``array``, which are the hashes for compiled code.
    """

    __slots__ = ("array", "block_tokens")

    def __init__(self, hashes: Iterable[int] = (), block_tokens: int = 1) -> None:
        # A third of the time of np.array(hashes).
        self.array: NDArray[np.uint64] = np.frombuffer(array("Q", hashes), dtype=np.uint64)
        self.block_tokens = block_tokens

    def __len__(self) -> int:
        return len(self.array)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Chain):
            return NotImplemented
        mine, theirs = (self.block_tokens, self.hashes), (other.block_tokens, other.hashes)
        return mine == theirs

    def __hash__(self) -> int:
        return hash((self.block_tokens, self.array.tobytes()))

    @property
    def hashes(self) -> list[int]:
        """The hashes of the blocks, in order."""
        return list(map(int, self.array))


EMPTY_CHAIN = Chain()


@dataclass(frozen=True, slots=True)
class _Order:
    """The blocks of one followed replica, in the order of their last use there."""

    table: Table
    handle: Handle

    def __len__(self) -> int:
        return int(self.table.used[0])


class PrefixIndex:
    """At most ``max_bytes`` of blocks; the one that was unused longest makes room.

    Where replicas are ``followed``, half of the bytes are for the order of use on each, in equal
    parts: a replica's own blocks make room there. ``on_held`` is called when one of those was sent
    a chain, with how many blocks of it are new there.

    Raises InputError for a bound that is no number of bytes in LEAST_INDEX_BYTES..MOST_INDEX_BYTES,
    or too few for those that are followed.
    """

    def __init__(
        self,
        replicas: int,
        max_bytes: int = DEFAULT_INDEX_BYTES,
        followed: Collection[int] = (),
    ) -> None:
        part = bytes_a_block(0)
        least = max(LEAST_INDEX_BYTES, 2 * part * len(followed))
        check_integer("prefix index", "max_bytes", max_bytes, least, most=MOST_INDEX_BYTES)
        self.replicas = replicas
        self.max_bytes = max_bytes
        self.on_held: Callable[[int, int], None] = lambda replica, new_blocks: None
        self._shared_bytes = max_bytes // 2 if followed else max_bytes
        self._table = _table(self._shared_bytes // bytes_a_block(replicas), replicas)
        self.handle = handle_of(self._table)  # for compiled code; another one for another table
        self.max_blocks = len(self._table.entries) - 1  # how many the bound allows
        self._orders: dict[int, _Order] = {}
        for replica in followed:
            own = _table((max_bytes - self._shared_bytes) // len(followed) // part, 0)
            self._orders[replica] = _Order(own, handle_of(own))
        # Looked up once: each is called for every request.
        self._fill, self._hold = fill.dispatcher, hold.dispatcher
        if followed:
            self._use_at, self._give_up = use_at.dispatcher, give_up.dispatcher

    def __len__(self) -> int:
        return int(self._table.used[0])

    @property
    def size_bytes(self) -> int:
        """What the blocks take once all of them are in use."""
        orders = sum(len(order.table.entries) - 1 for order in self._orders.values())
        return self.max_blocks * bytes_a_block(self.replicas) + orders * bytes_a_block(0)

    def fill(self, chain: Chain, row: Floats) -> None:
        """Write into ``row`` how many leading tokens of the chain each replica holds."""
        self._fill(self.handle, chain.array.copy(), chain.block_tokens, row)

    def hold(self, chain: Chain, replica: int) -> None:
        """Make the replica a holder of the whole chain, as far as the index has room for it."""
        blocks = chain.array
        if len(blocks) > self.max_blocks:
            blocks = blocks[: self.max_blocks]
        order = self._orders.get(replica)
        if order is None:
            self._hold(self.handle, blocks, replica)
            return
        blocks = blocks[: len(order.table.entries) - 1]
        new_blocks = self._use_at(self.handle, order.handle, blocks, replica)
        self._hold(self.handle, blocks, replica)
        self.on_held(replica, new_blocks)

    def believed(self, replica: int) -> int:
        """How many blocks a followed replica is taken to hold."""
        return len(self._orders[replica])

    def believe_at_most(self, replica: int, blocks: int) -> int:
        """Leave a followed replica those that were used there last; how many were given up.

        Each was held once since it was given up last, so all in all this costs what holding costs.
        No more than MOST_GIVEN_UP go at a time: the rest go when it is called again.
        """
        handle, bounds = self._orders[replica].handle, (blocks, MOST_GIVEN_UP)
        return self._give_up(self.handle, handle, replica, bounds)  # type: ignore[no-any-return]

    def forget(self, replica: int) -> None:
        """The replica holds nothing any more: it was started anew, or is another one now."""
        order = self._orders.get(replica)
        if order is not None:
            if not len(order):  # said again and again, it costs nothing
                return
            clear_table(order.table)
        word, bit = divmod(replica, REPLICAS_A_WORD)
        self._table.holders[: len(self), word] &= ~(np.uint64(1) << np.uint64(bit))

    def add_replica(self) -> int:
        """The number of a new replica, which holds nothing.

        Every 64th one makes each block larger; those that were unused longest make room for that.
        """
        replica = self.replicas
        self.replicas += 1
        if words_for(self.replicas) > words_for(replica):
            blocks = self._shared_bytes // bytes_a_block(self.replicas)
            table = _table(blocks, self.replicas)
            handle = handle_of(table)
            move(self.handle, handle)
            self._table, self.handle = table, handle
            self.max_blocks = len(table.entries) - 1
        return replica

    def check_invariants(self) -> None:
        """The tables are sound and within the bound; what a followed replica holds is in its
        order of use."""
        check_table(self._table)
        assert self.size_bytes <= self.max_bytes
        for replica, order in self._orders.items():
            check_table(order.table)
            word, bit = divmod(replica, REPLICAS_A_WORD)
            holds = self._table.holders[: len(self), word] >> np.uint64(bit) & np.uint64(1) != 0
            held = self._table.entries[: len(self)]["hash"][holds]
            assert set(held.tolist()) <= set(order.table.entries[: len(order)]["hash"].tolist())


def _table(blocks: int, replicas: int) -> Table:
    return empty_table(max(1, min(blocks, MAX_BLOCKS)), replicas)
