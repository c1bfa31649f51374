"""Block hashes and who holds them, in arrays of a fixed size: a hash table with a ring of uses.

    number       0    1    2   ...  capacity - 1     one block
    entries[number]                 its hash; the numbers used just before and just after it
    holders[number, word]           as in holders.py
    slots[slot]                     1 + the number that lies there, or 0; two slots a number

A table of no replicas has no holders: it is the order of use at one replica.

The ring runs from the block that was unused longest to the one used last, through a sentinel
(number ``capacity``). A hash lies in the first free slot from its home on, and what is taken out
draws those behind it closer, so that a walk may end at the first free slot (source: D. E. Knuth,
The Art of Computer Programming, volume 3, section 6.4, algorithm R).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from pointsman.core.compiled import inner, inner_inlined, kernel
from pointsman.core.handles import HANDLE_TYPE, array_at
from pointsman.dispatch.holders import (
    REPLICAS_A_WORD,
    Holders,
    empty_holders,
    fill_cached_tokens,
    words_for,
)

ENTRY = np.dtype([("hash", np.uint64), ("older", np.int32), ("newer", np.int32)])
SLOTS_A_BLOCK = 2
MAX_BLOCKS = 1 << 30

_NOWHERE = -1
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio (Knuth, same section)
_HALF = np.uint64(32)


class Table(NamedTuple):
    """The arrays; ``used[0]``: how many numbers have been given out."""

    entries: NDArray[Any]
    holders: Holders
    slots: NDArray[np.int32]
    used: NDArray[np.int64]


def bytes_a_block(replicas: int) -> int:
    """What one block takes."""
    return ENTRY.itemsize + 8 * words_for(replicas) + 4 * SLOTS_A_BLOCK


def empty_table(blocks: int, replicas: int) -> Table:
    """Room for that many blocks; the system gives the memory as it is used."""
    entries = np.zeros(blocks + 1, dtype=ENTRY)
    entries["older"][blocks] = entries["newer"][blocks] = blocks
    return Table(
        entries,
        empty_holders(blocks, replicas),
        np.zeros(SLOTS_A_BLOCK * blocks, dtype=np.int32),
        np.zeros(1, dtype=np.int64),
    )


def clear_table(table: Table) -> None:
    """Forget all blocks of a table without holders."""
    sentinel = table.entries.shape[0] - 1
    table.entries["older"][sentinel] = table.entries["newer"][sentinel] = sentinel
    table.slots[:] = 0
    table.used[0] = 0


def check_table(table: Table) -> None:
    """Every block in use is found once by its hash, and stands in the ring of uses once."""
    entries, holders, slots, _ = table
    count, sentinel = int(table.used[0]), entries.shape[0] - 1
    used = entries[:count]
    assert sorted((slots[slots > 0] - 1).tolist()) == list(range(count))
    assert len(set(used["hash"].tolist())) == count <= sentinel
    ring, number = [], int(entries["newer"][sentinel])
    while number != sentinel:
        ring.append(number)
        assert int(entries["newer"][entries["older"][number]]) == number
        number = int(entries["newer"][number])
    assert sorted(ring) == list(range(count))
    assert not holders[count:].any()


_ENTRIES = array_at(types.Array(numba.from_dtype(ENTRY), 1, "C"))
_HOLDERS = array_at(types.Array(types.uint64, 2, "C"))
_SLOTS = array_at(types.Array(types.int32, 1, "C"))
_USED = array_at(types.Array(types.int64, 1, "C"))
_HASHES = types.Array(types.uint64, 1, "C")
_ROW = types.Array(types.float64, 1, "C")


TABLE_WORDS = 9  # of a table's handle


@inner_inlined
def table_at(handle: Any) -> Table:
    """The table behind a handle."""
    return Table(
        _ENTRIES(handle[0], (handle[1],)),
        _HOLDERS(handle[2], (handle[3], handle[4])),
        _SLOTS(handle[5], (handle[6],)),
        _USED(handle[7], (handle[8],)),
    )


@inner_inlined
def _home(table: Table, block: Any) -> int:
    """The first slot where a hash may lie."""
    mixed = (block * _SPREAD) >> _HALF
    return np.int64((mixed * np.uint64(table.slots.shape[0])) >> _HALF)  # type: ignore[return-value]


@inner_inlined
def _slot_of(table: Table, block: Any) -> int:
    """Where the hash lies, or the free slot where it would."""
    slot = _home(table, block)
    while table.slots[slot] != 0 and table.entries[table.slots[slot] - 1].hash != block:
        slot += 1
        if slot == table.slots.shape[0]:
            slot = 0
    return slot


@inner_inlined
def _leave_ring(table: Table, number: int) -> None:
    older, newer = table.entries[number].older, table.entries[number].newer
    table.entries[older].newer = newer
    table.entries[newer].older = older


@inner_inlined
def _join_ring(table: Table, number: int) -> None:
    """As the one used last."""
    sentinel = table.entries.shape[0] - 1
    last = table.entries[sentinel].older
    table.entries[last].newer = number
    table.entries[number].older = last
    table.entries[number].newer = sentinel
    table.entries[sentinel].older = number


@inner
def _empty_slot(table: Table, slot: int) -> None:
    """Take out what lies there, and draw closer those behind that it kept from their homes."""
    size = table.slots.shape[0]
    gap, seen = slot, slot
    while True:
        seen += 1
        if seen == size:
            seen = 0
        if table.slots[seen] == 0:
            break
        home = _home(table, table.entries[table.slots[seen] - 1].hash)
        if (seen - home) % size >= (seen - gap) % size:
            table.slots[gap] = table.slots[seen]
            gap = seen
    table.slots[gap] = 0


@inner
def _new_number(table: Table, block: Any) -> int:
    """A number for a hash that is not there: that of the block unused longest if all are taken."""
    capacity = table.entries.shape[0] - 1
    if table.used[0] < capacity:
        number = table.used[0]
        table.used[0] += 1
    else:
        number = int(table.entries[capacity].newer)
        _empty_slot(table, _slot_of(table, table.entries[number].hash))
        _leave_ring(table, number)
        for word in range(table.holders.shape[1]):
            table.holders[number, word] = np.uint64(0)
    table.slots[_slot_of(table, block)] = number + 1
    table.entries[number].hash = block
    _join_ring(table, number)
    return number  # type: ignore[no-any-return]


@inner_inlined
def _use(table: Table, number: int) -> None:
    _leave_ring(table, number)
    _join_ring(table, number)


@inner
def _take_out(table: Table, number: int) -> None:
    """Take out a block; the last number's takes over its number, so that they have no holes."""
    _empty_slot(table, _slot_of(table, table.entries[number].hash))
    _leave_ring(table, number)
    last = table.used[0] - 1
    if number != last:
        table.slots[_slot_of(table, table.entries[last].hash)] = number + 1
        older, newer = table.entries[last].older, table.entries[last].newer
        table.entries[number].hash = table.entries[last].hash
        table.entries[number].older = older
        table.entries[number].newer = newer
        table.entries[older].newer = number
        table.entries[newer].older = number
    table.used[0] = last


@inner
def _give_up_oldest(table: Table, own: Table, replica: int) -> None:
    """The replica does not hold its block any more that was unused there longest."""
    number = int(own.entries[own.entries.shape[0] - 1].newer)
    slot = _slot_of(table, own.entries[number].hash)
    if table.slots[slot] != 0:  # else it was forgotten of all replicas
        bit = np.uint64(1) << np.uint64(replica % REPLICAS_A_WORD)
        table.holders[table.slots[slot] - 1, replica // REPLICAS_A_WORD] &= ~bit
    _take_out(own, number)


@kernel(types.int64(HANDLE_TYPE, _HASHES, types.int64))
def hold(handle: Any, chain: Any, replica: int) -> int:
    """Make the replica hold the chain, which must fit; its blocks are now the last used.

    From the last block to the first, so that a chain is forgotten from its end: a block without
    the ones before it is of no use.
    """
    table = table_at(handle)
    length = chain.shape[0]
    if table.used[0] + length > table.entries.shape[0] - 1:
        for place in range(length - 1, -1, -1):  # not the chain's own blocks are to make room
            slot = _slot_of(table, chain[place])
            if table.slots[slot] != 0:
                _use(table, int(table.slots[slot]) - 1)
    word = replica // REPLICAS_A_WORD
    bit = np.uint64(1) << np.uint64(replica % REPLICAS_A_WORD)
    for place in range(length - 1, -1, -1):
        slot = _slot_of(table, chain[place])
        number = int(table.slots[slot]) - 1
        if number == _NOWHERE:
            number = _new_number(table, chain[place])
        else:
            _use(table, number)
        table.holders[number, word] |= bit
    return length  # type: ignore[no-any-return]


@inner_inlined
def fill_held(table: Table, chain: Any, numbers: Any, block_tokens: int, row: Any) -> int:
    """Write how many leading tokens of the chain each replica holds; the leading known blocks,
    whose ``numbers`` are written too."""
    known = 0
    while known < chain.shape[0]:
        number = int(table.slots[_slot_of(table, chain[known])]) - 1
        if number == _NOWHERE:
            break
        numbers[known] = np.uint64(number)
        known += 1
    fill_cached_tokens(table.holders, numbers, 0, known, (block_tokens, known * block_tokens), row)
    return known


@kernel(types.int64(HANDLE_TYPE, _HASHES, types.int64, _ROW))
def fill(handle: Any, chain: Any, block_tokens: int, row: Any) -> int:
    """Write how many leading tokens of the chain each replica holds; the leading known blocks.

    ``chain`` is overwritten with their numbers.
    """
    return fill_held(table_at(handle), chain, chain, block_tokens, row)


@kernel(types.int64(HANDLE_TYPE, HANDLE_TYPE, _HASHES, types.int64))
def use_at(handle: Any, own_handle: Any, chain: Any, replica: int) -> int:
    """Make the chain, which must fit, the last used at a replica; how many blocks are new there.

    ``own``: the blocks of that replica alone. Where they are too many, those unused there longest
    are given up, none of which is of the chain.
    """
    table, own = table_at(handle), table_at(own_handle)
    new = 0
    for place in range(chain.shape[0] - 1, -1, -1):
        number = int(own.slots[_slot_of(own, chain[place])]) - 1
        if number == _NOWHERE:
            new += 1
        else:
            _use(own, number)
    while own.used[0] + new > own.entries.shape[0] - 1:
        _give_up_oldest(table, own, replica)
    for place in range(chain.shape[0] - 1, -1, -1):
        number = int(own.slots[_slot_of(own, chain[place])]) - 1
        if number == _NOWHERE:
            _new_number(own, chain[place])
        else:
            _use(own, number)
    return new


@kernel(types.int64(HANDLE_TYPE, HANDLE_TYPE, types.int64, types.UniTuple(types.int64, 2)))
def give_up(handle: Any, own_handle: Any, replica: int, bounds: tuple[int, int]) -> int:
    """Leave a replica the blocks that were used there last; how many it lost.

    ``bounds``: how many it may keep, and how many it loses at most.
    """
    table, own = table_at(handle), table_at(own_handle)
    lost = 0
    while own.used[0] > bounds[0] and lost < bounds[1]:
        _give_up_oldest(table, own, replica)
        lost += 1
    return lost


@kernel(types.int64(HANDLE_TYPE, HANDLE_TYPE))
def move(from_handle: Any, to_handle: Any) -> int:
    """Put the blocks used last into an empty table with more words, as many as fit; how many."""
    old, new = table_at(from_handle), table_at(to_handle)
    surplus = max(0, old.used[0] - (new.entries.shape[0] - 1))
    sentinel = old.entries.shape[0] - 1
    number = int(old.entries[sentinel].newer)
    moved = 0
    while number != sentinel:
        if surplus > 0:
            surplus -= 1
        else:
            place = _new_number(new, old.entries[number].hash)
            for word in range(old.holders.shape[1]):
                new.holders[place, word] = old.holders[number, word]
            moved += 1
        number = int(old.entries[number].newer)
    return moved
