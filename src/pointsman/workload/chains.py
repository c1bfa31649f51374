"""The chains of blocks of a trace while it is read: ids one after another, numbered at the end.

Traces number their blocks, so a chain is taken as integers without a look at each. The first one
with another kind of id turns all into numbered names.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence

import numpy as np

from pointsman.workload.numbering import (
    Numbering,
    first_appearances,
    in_order_of_appearance,
    renumbered,
)
from pointsman.workload.workload import Ints, Longs

# A table of all ids up to the largest is made where it has at most so many entries an id.
_ENTRIES_AN_ID = 2
_SMALL_TABLE = 1 << 16


class Chains:
    """A chain a row, in the order in which rows are added."""

    def __init__(self) -> None:
        self._starts = array("q", [0])
        self._ids = array("q")  # the integers themselves, or the numbers of names
        self._names: Numbering | None = None

    def add(self, chain: Sequence[Hashable]) -> None:
        """Append the chain of the next row; ids that are equal in Python are the same."""
        if self._names is None:
            try:
                # What fails leaves no half of a chain behind.
                self._ids.extend(chain if isinstance(chain, array) else array("q", chain))  # type: ignore[arg-type]
            except (TypeError, OverflowError):
                self._names = self._named()
        if self._names is not None:
            self._ids.extend(map(self._names.__getitem__, chain))
        self._starts.append(len(self._ids))

    def in_order(self, order: Longs) -> tuple[Longs, Ints, tuple[str, ...] | None]:
        """Offsets, dense numbers by first appearance, and names, of the rows in that order."""
        starts, ids = self._reordered(order)
        if self._names is None:
            numbers, distinct = numbered(ids)
            if np.array_equal(distinct, np.arange(distinct.size)):
                return starts, numbers, None
            return starts, numbers, tuple(map(str, distinct.tolist()))
        return starts, *in_order_of_appearance(ids.astype(np.int32), self._names)

    def _named(self) -> Numbering:
        numbers, distinct = numbered(np.frombuffer(self._ids, dtype=np.int64))
        self._ids = array("q", numbers.tolist())
        return Numbering(zip(distinct.tolist(), range(distinct.size), strict=True))

    def _reordered(self, order: Longs) -> tuple[Longs, Longs]:
        starts = np.array(self._starts, dtype=np.int64)
        ids = np.frombuffer(self._ids, dtype=np.int64)
        if np.array_equal(order, np.arange(order.size)):
            return starts, ids
        lengths = np.diff(starts)[order]
        new_starts = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths)))
        # Position j of the reordered blocks: its row's old start plus its place in the chain.
        places = np.arange(new_starts[-1]) - np.repeat(new_starts[:-1], lengths)
        return new_starts, ids[np.repeat(starts[:-1][order], lengths) + places]


def numbered(ids: Longs) -> tuple[Ints, Longs]:
    """A number for each id, dense by first appearance, and the distinct ids in that order."""
    if ids.size == 0:
        return ids.astype(np.int32), ids
    table = max(_ENTRIES_AN_ID * ids.size, _SMALL_TABLE)
    if ids.min() >= 0 and ids.max() < table:
        distinct = first_appearances(ids)
        return renumbered(ids, distinct), distinct.astype(np.int64)
    values, places = np.unique(ids, return_inverse=True)
    appearances = first_appearances(places)
    return renumbered(places, appearances), values[appearances]
