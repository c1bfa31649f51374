"""The KV cache of a replica: what is taken next, what a hit keeps, what is evicted.

    slot     0    1    2   ...  capacity - 1     one block of memory
    slots[r, slot].block      the id of its content, or NONE
    slot_of[r, block]         where that content lies; EVICTED where it once lay; or NONE

Free slots form a ring through a sentinel (number ``capacity``): ``slots[r, sentinel].newer`` is the
one freed longest ago, which is taken first. Content stays in a free slot until it is taken (vLLM
0.19, ``vllm/v1/core/block_pool.py``).
"""

from __future__ import annotations

import numpy as np

from pointsman.core.compiled import inner, inner_inlined
from pointsman.sim.batching_state import EVICTED, NONE, Fleet
from pointsman.sim.knowledge import tell


@inner_inlined
def _leave_ring(fleet: Fleet, r: int, slot: int) -> None:
    before, after = fleet.slots[r, slot].older, fleet.slots[r, slot].newer
    fleet.slots[r, before].newer = after
    fleet.slots[r, after].older = before
    fleet.replicas[r].free -= 1


@inner_inlined
def take_slot(fleet: Fleet, r: int) -> int:
    """Take the slot that was freed longest ago; what it held is evicted. One must be free."""
    slot = fleet.slots[r, fleet.replicas[r].capacity].newer
    _leave_ring(fleet, r, slot)
    fleet.slots[r, slot].owner = NONE
    block = fleet.slots[r, slot].block
    if block != NONE:
        fleet.slots[r, slot].block = NONE
        fleet.slot_of[r, block] = EVICTED
        tell(fleet.knowledge, r, block, 0)
        fleet.replicas[r].evictions += 1
    fleet.slots[r, slot].references = 1
    return slot  # type: ignore[no-any-return]


@inner_inlined
def use_slot(fleet: Fleet, r: int, slot: int) -> None:
    """Use a slot for its content, which a request hit."""
    if fleet.slots[r, slot].references == 0:
        _leave_ring(fleet, r, slot)
    fleet.slots[r, slot].references += 1


@inner_inlined
def release_slot(fleet: Fleet, r: int, slot: int) -> None:
    """Use it no more; once nobody does, it is the one to be taken last."""
    fleet.slots[r, slot].references -= 1
    if fleet.slots[r, slot].references == 0:
        sentinel = fleet.replicas[r].capacity
        last = fleet.slots[r, sentinel].older
        fleet.slots[r, last].newer = slot
        fleet.slots[r, slot].older = last
        fleet.slots[r, slot].newer = sentinel
        fleet.slots[r, sentinel].older = slot
        fleet.replicas[r].free += 1


@inner_inlined
def name_content(fleet: Fleet, r: int, slot: int, block: int) -> None:
    """The slot is full of this block; an id that lies elsewhere stays there."""
    if fleet.slot_of[r, block] < 0:
        fleet.slot_of[r, block] = slot
        fleet.slots[r, slot].block = block
        tell(fleet.knowledge, r, block, 1)


@inner_inlined
def evicted_blocks(fleet: Fleet, r: int, first: int, last: int) -> int:
    """Of the chain's places first .. last - 1, those that a cache without bounds would have.

    They follow the cached prefix; where one of them is evicted, those behind it are of no use
    either. Ids of a chain say what comes before, so that behind one that was never there none was.
    """
    place = first
    while place < last and fleet.slot_of[r, fleet.chain_blocks[place]] != NONE:
        place += 1
    return place - first


@inner
def clear_cache(fleet: Fleet, r: int) -> None:
    """All slots are free and empty, as those of a replica that starts."""
    capacity = fleet.replicas[r].capacity
    for slot in range(capacity + 1):
        fleet.slots[r, slot].block = NONE
        fleet.slots[r, slot].owner = NONE
        fleet.slots[r, slot].next_own = NONE
        fleet.slots[r, slot].references = 0
        fleet.slots[r, slot].newer = slot + 1 if slot < capacity else 0
        fleet.slots[r, slot].older = slot - 1 if slot > 0 else capacity
    for block in range(fleet.slot_of.shape[1]):
        fleet.slot_of[r, block] = NONE
    fleet.replicas[r].free = capacity


def check_invariants(fleet: Fleet) -> None:
    """Free, used and cached slots add up; the ring holds the free ones and no other."""
    for r, replica in enumerate(fleet.replicas):
        capacity, slots = int(replica["capacity"]), fleet.slots[r]
        ring: list[int] = []
        slot = int(slots["newer"][capacity])
        while slot != capacity:
            ring.append(slot)
            assert len(ring) <= capacity
            slot = int(slots["newer"][slot])
        references = slots["references"][:capacity]
        assert sorted(ring) == np.flatnonzero(references == 0).tolist()
        assert len(ring) == replica["free"]
        assert (references >= 0).all()
        for block in np.flatnonzero(fleet.slot_of[r] >= 0).tolist():
            assert slots["block"][fleet.slot_of[r, block]] == block
