"""What the router in front of the simulated engines knows of them, and how late.

``holders`` is what a policy sees of the caches: a block counts as cached on a replica where its
engine said so (``told``) or a request that the router sent there and that has not ended brings it
(``expected``). Events of the caches come ``event_delay_ms`` late; the gauges of each engine are
read every ``metrics_age_ms``, each replica at its own instants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pointsman.core.checks import check_number
from pointsman.core.compiled import inner, inner_inlined
from pointsman.dispatch.holders import Holders, empty_holders

# Events that are under way at once; with more, the oldest ones arrive before their time.
MOST_DELAYED = 1 << 18

CLOCK = np.dtype(
    [
        ("now_ms", np.float64),
        ("event_delay_ms", np.float64),
        ("metrics_age_ms", np.float64),
        ("keeps_holders", np.int64),  # 0 where no policy looks at the caches
        ("routers", np.int64),
        ("own", np.int64),  # the first row of accounts of the router that chooses
        ("first_delayed", np.int64),
        ("delayed", np.int64),
    ],
    align=True,
)

DELAYED = np.dtype(
    [("due_ms", np.float64), ("block", np.int32), ("replica", np.int16), ("stored", np.int16)],
    align=True,
)

GAUGES = np.dtype(  # of one engine, as last read
    [
        ("next_ms", np.float64),
        ("waiting", np.float64),
        ("running", np.float64),
        ("kv_use", np.float64),
    ],
    align=True,
)

SIGHT = np.dtype(  # of one replica, as one of several routers sees it
    [
        ("waiting", np.float64),  # others' requests, by the gauges last read
        ("running", np.float64),
        ("decodes", np.int64),  # its own in the iterations under way, when it last chose
    ],
    align=True,
)

_ONE = np.uint64(1)


@dataclass(frozen=True, slots=True)
class Signals:
    """How old the router's information is: ms between two readings of an engine's gauges, and ms
    until an event of its cache has come; 0 for at once."""

    metrics_age_ms: float = 0.0
    event_delay_ms: float = 0.0

    def __post_init__(self) -> None:
        for name in ("metrics_age_ms", "event_delay_ms"):
            check_number("signals", name, getattr(self, name))


class Knowledge(NamedTuple):
    """Bit sets as in ``dispatch/holders.py``, and what is still to come.

    Of several routers: ``sim/routers.py``.
    """

    holders: Holders
    told: Holders
    expected: NDArray[np.int32]  # (blocks, replicas): requests in flight that bring the block
    delayed: NDArray[Any]  # a ring
    gauges: NDArray[Any]
    clock: NDArray[Any]  # one record
    sights: NDArray[Any]


def blank_knowledge(ids: int, replicas: int, signals: Signals) -> Knowledge:
    """Nothing is cached anywhere; ``keeps_holders`` is set by whoever runs a policy."""
    late = signals.event_delay_ms > 0.0
    gauges = np.zeros(replicas, dtype=GAUGES)
    gauges["next_ms"] = signals.metrics_age_ms * np.arange(replicas) / replicas
    clock = np.zeros(1, dtype=CLOCK)
    clock["event_delay_ms"] = signals.event_delay_ms
    clock["metrics_age_ms"] = signals.metrics_age_ms
    clock["keeps_holders"] = 1
    clock["routers"] = 1
    return Knowledge(
        holders=empty_holders(ids, replicas),
        told=empty_holders(ids, replicas),
        expected=np.zeros((ids, replicas), dtype=np.int32),
        delayed=np.zeros(MOST_DELAYED if late else 1, dtype=DELAYED),
        gauges=gauges,
        clock=clock,
        sights=np.zeros(replicas, dtype=SIGHT),
    )


@inner_inlined
def _hear(known: Knowledge, r: int, block: int, stored: int) -> None:
    bit = _ONE << np.uint64(r & 63)
    if stored == 1:
        known.told[block, r >> 6] |= bit
        known.holders[block, r >> 6] |= bit
    else:
        known.told[block, r >> 6] &= ~bit
        if known.expected[block, r] == 0:
            known.holders[block, r >> 6] &= ~bit
    if known.clock[0].routers > 1:
        _hear_everywhere(known, r, block, stored)


@inner
def _hear_everywhere(known: Knowledge, r: int, block: int, stored: int) -> None:
    """All routers but the first one hear it too."""
    bit, blocks = _ONE << np.uint64(r & 63), known.told.shape[0]
    for row in range(blocks + block, known.holders.shape[0], blocks):
        if stored == 1:
            known.holders[row, r >> 6] |= bit
        elif known.expected[row, r] == 0:
            known.holders[row, r >> 6] &= ~bit


@inner
def _send(known: Knowledge, r: int, block: int, stored: int) -> None:
    clock, ring = known.clock[0], known.delayed
    if clock.delayed == ring.shape[0]:
        _take_oldest(known)
    event = ring[(clock.first_delayed + clock.delayed) % ring.shape[0]]
    event.due_ms = clock.now_ms + clock.event_delay_ms
    event.block = block
    event.replica = r
    event.stored = stored
    clock.delayed += 1


@inner_inlined
def _take_oldest(known: Knowledge) -> None:
    clock = known.clock[0]
    event = known.delayed[clock.first_delayed]
    _hear(known, event.replica, event.block, event.stored)
    clock.first_delayed = (clock.first_delayed + 1) % known.delayed.shape[0]
    clock.delayed -= 1


@inner_inlined
def tell(known: Knowledge, r: int, block: int, stored: int) -> None:
    """The engine says that it stored a block (1) or removed it (0)."""
    clock = known.clock[0]
    if clock.keeps_holders == 1:
        if clock.event_delay_ms > 0.0:
            _send(known, r, block, stored)
        else:
            _hear(known, r, block, stored)


@inner
def hear_events(known: Knowledge, now_ms: float) -> None:
    """Take in every event that has come by now."""
    clock = known.clock[0]
    while clock.delayed > 0 and known.delayed[clock.first_delayed].due_ms <= now_ms:
        _take_oldest(known)


@inner_inlined
def expect_block(known: Knowledge, first: int, r: int, block: int) -> None:
    """A request was sent there that brings the block; its router's rows begin at ``first``."""
    row = first + block
    known.expected[row, r] += 1
    known.holders[row, r >> 6] |= _ONE << np.uint64(r & 63)


@inner_inlined
def expect_no_more(known: Knowledge, first: int, r: int, block: int) -> None:
    """That request ended."""
    row = first + block
    known.expected[row, r] -= 1
    if known.expected[row, r] == 0:
        bit = _ONE << np.uint64(r & 63)
        known.holders[row, r >> 6] &= known.told[block, r >> 6] | ~bit


@inner
def forget_replica(known: Knowledge, r: int) -> None:
    """The replica is gone with its cache; events under way are void. What is still to come there
    after a hand-off stays expected."""
    clock, ring = known.clock[0], known.delayed
    for k in range(clock.delayed):
        event = ring[(clock.first_delayed + k) % ring.shape[0]]
        if event.replica == r:
            event.stored = 0
    bit = _ONE << np.uint64(r & 63)
    for block in range(known.told.shape[0]):
        known.told[block, r >> 6] &= ~bit
    for row in range(known.expected.shape[0]):
        if known.expected[row, r] == 0:
            known.holders[row, r >> 6] &= ~bit
