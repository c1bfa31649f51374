"""What a request holds on a replica: its seat, and the blocks of the cache in that seat's row."""

from __future__ import annotations

from typing import Any

from pointsman.core.compiled import inner, inner_inlined
from pointsman.sim.batching_state import NONE, Fleet
from pointsman.sim.kv_cache import (
    evicted_blocks,
    name_content,
    release_slot,
    take_slot,
    use_slot,
)


@inner_inlined
def blocks_for(tokens: int, block_size: int) -> int:
    """How many blocks hold so many tokens."""
    return (tokens + block_size - 1) // block_size


@inner_inlined
def _seat_row(fleet: Fleet, r: int, i: int) -> int:
    return r * fleet.order.shape[1] + fleet.progress[i].seat  # type: ignore[no-any-return]


@inner
def hold_blocks(fleet: Fleet, r: int, i: int, blocks: int) -> None:
    """Take slots until the request holds so many."""
    row = _seat_row(fleet, r, i)
    for place in range(fleet.progress[i].held_blocks, blocks):
        fleet.held[row, place] = take_slot(fleet, r)
        fleet.progress[i].held_blocks = place + 1


@inner_inlined
def name_blocks(fleet: Fleet, r: int, i: int, first: int, last: int) -> None:
    """Blocks number first .. last - 1 of the request are full: those with an id are cached."""
    row = _seat_row(fleet, r, i)
    start = fleet.questions[i].chain_start
    for place in range(first, min(last, fleet.questions[i].known_blocks)):
        name_content(fleet, r, fleet.held[row, place], fleet.chain_blocks[start + place])


@inner_inlined
def mark_own_blocks(fleet: Fleet, r: int, i: int) -> None:
    """Chain the full blocks that no chain names, so that the request finds them when it resumes."""
    row = _seat_row(fleet, r, i)
    full = fleet.progress[i].computed // fleet.engines[r].block_size
    following = NONE
    for place in range(full - 1, fleet.questions[i].known_blocks - 1, -1):
        slot = fleet.held[row, place]
        fleet.slots[r, slot].owner = i
        fleet.slots[r, slot].next_own = following
        following = slot
    fleet.progress[i].own_slot = following


@inner_inlined
def cached_prefix(fleet: Fleet, r: int, i: int, most: int) -> tuple[int, int]:
    """Leading blocks in the cache, at most ``most``; and how many of them lie in free slots."""
    start = fleet.questions[i].chain_start
    idle = 0
    hits = min(most, fleet.questions[i].known_blocks)
    for place in range(hits):
        slot = fleet.slot_of[r, fleet.chain_blocks[start + place]]
        if slot < 0:
            return place, idle
        if fleet.slots[r, slot].references == 0:
            idle += 1
    slot = fleet.progress[i].own_slot
    while hits < most and slot != NONE and fleet.slots[r, slot].owner == i:
        idle += 1
        hits += 1
        slot = fleet.slots[r, slot].next_own
    return hits, idle


@inner_inlined
def count_recomputed(fleet: Fleet, r: int, i: int, hits: int) -> None:
    """What of its prompt is computed again because it was evicted; the last token always is."""
    question, size = fleet.questions[i], fleet.engines[r].block_size
    most = min(question.prompt_blocks, (question.prompt_tokens - 1) // size)
    start = question.chain_start
    lost = evicted_blocks(fleet, r, start + hits, start + most)
    fleet.progress[i].recomputed_tokens = lost * size


@inner_inlined
def blocks_lacking(fleet: Fleet, r: int, ahead: Any) -> int:
    """Blocks that the running requests need beyond theirs to compute ``ahead`` more tokens each."""
    size = fleet.engines[0].block_size
    lacking = 0
    for place in range(fleet.replicas[r].running):
        request = fleet.progress[fleet.order[r, place]]
        lacking += max(0, blocks_for(request.computed + ahead, size) - request.held_blocks)
    return lacking


@inner_inlined
def take_seat(fleet: Fleet, r: int, i: int, hits: int) -> None:
    """Give the request a seat, and its leading blocks that the cache holds: ``hits`` of them."""
    replica, request = fleet.replicas[r], fleet.progress[i]
    replica.seats_free -= 1
    request.seat = fleet.free_seats[r, replica.seats_free]
    row = _seat_row(fleet, r, i)
    start = fleet.questions[i].chain_start
    known = min(hits, fleet.questions[i].known_blocks)
    for place in range(known):
        slot = fleet.slot_of[r, fleet.chain_blocks[start + place]]
        use_slot(fleet, r, slot)
        fleet.held[row, place] = slot
    slot = request.own_slot
    for place in range(known, hits):
        use_slot(fleet, r, slot)
        fleet.held[row, place] = slot
        slot = fleet.slots[r, slot].next_own
    request.held_blocks = hits


@inner
def free_seat(fleet: Fleet, r: int, i: int) -> None:
    """Free the request's blocks, the last one first, and its seat."""
    row = _seat_row(fleet, r, i)
    for place in range(fleet.progress[i].held_blocks - 1, -1, -1):
        release_slot(fleet, r, fleet.held[row, place])
    replica = fleet.replicas[r]
    fleet.free_seats[r, replica.seats_free] = fleet.progress[i].seat
    replica.seats_free += 1
    fleet.progress[i].held_blocks = 0
    fleet.progress[i].seat = NONE
