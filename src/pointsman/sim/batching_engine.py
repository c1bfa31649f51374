"""One replica that batches continuously: the engine model ``vllm-v1`` (docs/simulator.md).

start_iteration     who gets which chunk, who is admitted, who is preempted; how long it takes
finish_stretch      what was computed, generated and finished
sync_stretch        the blocks taken and filled so far, for whoever looks in between
cut_stretch         end early, for an arrival
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pointsman.core.compiled import helper, inlined
from pointsman.sim.batching_state import FINISHED, NONE, RUNNING, WAITING, Fleet
from pointsman.sim.kv_cache import name_content, release_slot, take_slot, use_slot


@inlined
def blocks_for(tokens: int, block_size: int) -> int:
    """How many blocks hold so many tokens."""
    return (tokens + block_size - 1) // block_size


@inlined
def _seat_row(fleet: Fleet, r: int, i: int) -> int:
    return r * fleet.order.shape[1] + fleet.progress[i].seat  # type: ignore[no-any-return]


@helper
def _hold_blocks(fleet: Fleet, r: int, i: int, blocks: int) -> None:
    """Take slots until the request holds so many."""
    row = _seat_row(fleet, r, i)
    for place in range(fleet.progress[i].held_blocks, blocks):
        fleet.held[row, place] = take_slot(fleet, r)
        fleet.progress[i].held_blocks = place + 1


@inlined
def _name_blocks(fleet: Fleet, r: int, i: int, first: int, last: int) -> None:
    """Blocks number first .. last - 1 of the request are full: those with an id are cached."""
    row = _seat_row(fleet, r, i)
    start = fleet.questions[i].chain_start
    for place in range(first, min(last, fleet.questions[i].known_blocks)):
        name_content(fleet, r, fleet.held[row, place], fleet.chain_blocks[start + place])


@helper
def _leave_seat(fleet: Fleet, r: int, i: int) -> None:
    """Free the request's blocks, the last one first, and its seat."""
    row = _seat_row(fleet, r, i)
    for place in range(fleet.progress[i].held_blocks - 1, -1, -1):
        release_slot(fleet, r, fleet.held[row, place])
    replica = fleet.replicas[r]
    fleet.free_seats[r, fleet.order.shape[1] - replica.running] = fleet.progress[i].seat
    replica.running -= 1
    fleet.progress[i].held_blocks = 0
    fleet.progress[i].seat = NONE


@inlined
def _mark_own_blocks(fleet: Fleet, r: int, i: int) -> None:
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


@inlined
def _preempt_last(fleet: Fleet, r: int) -> int:
    """The request admitted last loses its seat and goes to the front of the queue."""
    replica = fleet.replicas[r]
    i = fleet.order[r, replica.running - 1]
    request = fleet.progress[i]
    _mark_own_blocks(fleet, r, i)
    _leave_seat(fleet, r, i)
    request.computed = 0
    request.chunk = 0
    request.status = WAITING
    request.preemptions += 1
    request.following = replica.first_waiting
    if replica.first_waiting == NONE:
        replica.last_waiting = i
    replica.first_waiting = i
    return i  # type: ignore[no-any-return]


@inlined
def join_queue(fleet: Fleet, r: int, i: int) -> None:
    """The request waits behind all others."""
    replica = fleet.replicas[r]
    fleet.progress[i].following = NONE
    if replica.first_waiting == NONE:
        replica.first_waiting = i
    else:
        fleet.progress[replica.last_waiting].following = i
    replica.last_waiting = i


@inlined
def _cached_prefix(fleet: Fleet, r: int, i: int, most: int) -> tuple[int, int]:
    """Leading blocks in the cache, at most ``most``; and how many of them lie in free slots."""
    start = fleet.questions[i].chain_start
    idle = 0
    hits = min(most, fleet.questions[i].known_blocks)
    for place in range(hits):
        slot = fleet.slot_of[r, fleet.chain_blocks[start + place]]
        if slot == NONE:
            return place, idle
        if fleet.slots[r, slot].references == 0:
            idle += 1
    slot = fleet.progress[i].own_slot
    while hits < most and slot != NONE and fleet.slots[r, slot].owner == i:
        idle += 1
        hits += 1
        slot = fleet.slots[r, slot].next_own
    return hits, idle


@inlined
def _admit(fleet: Fleet, r: int, i: int, hits: int) -> None:
    """Take the first request that waits from the queue, give it a seat and the blocks it hits."""
    replica, request = fleet.replicas[r], fleet.progress[i]
    replica.first_waiting = request.following
    request.seat = fleet.free_seats[r, fleet.order.shape[1] - replica.running - 1]
    fleet.order[r, replica.running] = i
    replica.running += 1
    request.status = RUNNING
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


@inlined
def _blocks_lacking(fleet: Fleet, r: int, ahead: Any) -> int:
    """Blocks that the running requests need beyond theirs to compute ``ahead`` more tokens each."""
    size = fleet.engines[0].block_size
    lacking = 0
    for place in range(fleet.replicas[r].running):
        request = fleet.progress[fleet.order[r, place]]
        lacking += max(0, blocks_for(request.computed + ahead, size) - request.held_blocks)
    return lacking


@helper
def _stretch_length(fleet: Fleet, r: int) -> Any:
    """Iterations until a request finishes or fills a block that has an id, or while there are
    blocks."""
    size = fleet.engines[r].block_size
    most = np.int64(1) << 40
    for place in range(fleet.replicas[r].running):
        i = fleet.order[r, place]
        question, request = fleet.questions[i], fleet.progress[i]
        most = min(most, np.int64(question.output_tokens - request.generated))
        if question.known_blocks > request.computed // size:
            most = min(most, np.int64(size - request.computed % size))
    free = fleet.replicas[r].free
    if _blocks_lacking(fleet, r, most) <= free:
        return most
    enough, too_many = np.int64(1), most
    while too_many - enough > 1:
        middle = (enough + too_many) // 2
        if _blocks_lacking(fleet, r, middle) <= free:
            enough = middle
        else:
            too_many = middle
    return enough


@helper
def start_iteration(fleet: Fleet, r: int, now_ms: float) -> None:  # noqa: PLR0912, PLR0915 - in the scheduler's order
    """Start what comes next on the replica; it becomes idle when nothing runs or waits."""
    replica, engine = fleet.replicas[r], fleet.engines[r]
    size = engine.block_size
    budget = engine.max_num_batched_tokens
    prefill = 0
    decodes = 0
    kv_tokens = 0.0
    attention = 0.0
    preempted = False

    # Running requests, in the order of admission.
    place = 0
    while place < replica.running:
        i = fleet.order[r, place]
        request = fleet.progress[i]
        computed = request.computed
        total = fleet.questions[i].prompt_tokens + request.generated
        chunk = min(total - computed, budget)
        if chunk > 0:
            blocks = blocks_for(computed + chunk, size)
            kept = True
            while kept and blocks - request.held_blocks > replica.free:
                preempted = True
                kept = _preempt_last(fleet, r) != i
            if not kept:
                break
            _hold_blocks(fleet, r, i, blocks)
            request.chunk = chunk
            budget -= chunk
            if request.generated > 0 and computed == total - 1:
                decodes += 1
                kv_tokens += computed + 1
            else:
                prefill += chunk
                attention += chunk * (computed + 0.5 * chunk)
        place += 1

    # Waiting requests, first come first served.
    may_change = preempted
    before_last = max(np.int64(0), replica.length - 1)
    last_start_ms = replica.start_ms + stretch_ms(replica.base_ms, replica.growth_ms, before_last)
    while (
        not preempted
        and replica.first_waiting != NONE
        and budget > 0
        and replica.running < engine.max_num_seqs
    ):
        i = replica.first_waiting
        request = fleet.progress[i]
        came_late = fleet.questions[i].arrival_ms > last_start_ms
        if engine.see_late == 1 and came_late and replica.running > 0 and replica.length > 0:
            may_change = True
            break
        total = fleet.questions[i].prompt_tokens + request.generated
        hits, idle = _cached_prefix(fleet, r, i, (total - 1) // size)
        cached = hits * size
        chunk = min(total - cached, budget)
        reserved = total if engine.reserve_full == 1 else cached + chunk
        if blocks_for(reserved, size) - hits > replica.free - idle:
            break
        _admit(fleet, r, i, hits)
        if np.isnan(request.scheduled_ms):
            request.scheduled_ms = now_ms
            request.cached_tokens = cached
        request.computed = cached
        _hold_blocks(fleet, r, i, blocks_for(cached + chunk, size))
        request.chunk = chunk
        budget -= chunk
        if request.generated > 0 and cached == total - 1:  # a resumed one that only decodes
            decodes += 1
            kv_tokens += cached + 1
        else:
            prefill += chunk
            attention += chunk * (cached + 0.5 * chunk)

    # How long it takes, and how often it can be repeated.
    replica.start_ms = now_ms
    if replica.running == 0:
        replica.end_ms = np.inf
        replica.length = 0
        return
    replica.base_ms = (
        engine.per_iteration_ms
        + engine.per_prefill_token_ms * prefill
        + engine.per_decode_ms * decodes
        + engine.per_kv_token_ms * kv_tokens
        + engine.per_attention_ms * attention
    )
    replica.growth_ms = engine.per_kv_token_ms * decodes
    replica.length = 1
    if prefill == 0 and decodes == replica.running and not may_change:
        replica.length = _stretch_length(fleet, r)
    replica.events += 1
    replica.end_ms = now_ms + stretch_ms(replica.base_ms, replica.growth_ms, replica.length)


@inlined
def stretch_ms(base_ms: float, growth_ms: float, iterations: int) -> float:
    """How long so many iterations take, the first one ``base_ms``, each ``growth_ms`` more."""
    return iterations * base_ms + growth_ms * (0.5 * iterations * (iterations - 1))


@inlined
def _iterations_done(fleet: Fleet, r: int, now_ms: float) -> int:
    """How many iterations of the stretch have ended by now; fewer than its length."""
    replica = fleet.replicas[r]
    start_ms, base_ms, growth_ms = replica.start_ms, replica.base_ms, replica.growth_ms
    elapsed_ms = now_ms - start_ms
    if replica.length <= 1 or elapsed_ms <= 0.0 or base_ms <= 0.0:
        return 0
    # growth/2 m^2 + (base - growth/2) m = elapsed; then rounding is mended by looking.
    linear = base_ms - 0.5 * growth_ms
    root = np.sqrt(linear * linear + 2.0 * growth_ms * elapsed_ms)
    done = min(np.int64(2.0 * elapsed_ms / (linear + root)), replica.length - 1)
    while done < replica.length - 1 and (
        start_ms + stretch_ms(base_ms, growth_ms, done + 1) <= now_ms
    ):
        done += 1
    while done > 0 and start_ms + stretch_ms(base_ms, growth_ms, done) > now_ms:
        done -= 1
    return done  # type: ignore[no-any-return]


@helper
def sync_stretch(fleet: Fleet, r: int, now_ms: float) -> None:
    """Take the blocks of the stretch as far as it has come; none of them has an id yet."""
    done = _iterations_done(fleet, r, now_ms)
    if done > 0:
        _take_blocks_of_stretch(fleet, r, done + 1)


@helper
def _take_blocks_of_stretch(fleet: Fleet, r: int, started: int) -> None:
    """The blocks for the first so many iterations of the stretch."""
    size = fleet.engines[r].block_size
    for place in range(fleet.replicas[r].running):
        i = fleet.order[r, place]
        if fleet.progress[i].chunk > 0:
            tokens = fleet.progress[i].computed + fleet.progress[i].chunk + started - 1
            _hold_blocks(fleet, r, i, blocks_for(tokens, size))


@helper
def cut_stretch(fleet: Fleet, r: int, now_ms: float) -> None:
    """End the stretch with the iteration that runs; with the next one where arrivals are seen
    late."""
    replica = fleet.replicas[r]
    length = _iterations_done(fleet, r, now_ms) + 1 + fleet.engines[r].see_late
    if length < replica.length:
        replica.length = length
        elapsed_ms = stretch_ms(replica.base_ms, replica.growth_ms, length)
        replica.end_ms = replica.start_ms + elapsed_ms


@helper
def finish_stretch(fleet: Fleet, r: int) -> None:
    """What the iterations that end now computed and generated, and who is finished."""
    replica = fleet.replicas[r]
    size = fleet.engines[r].block_size
    now_ms = replica.end_ms
    repeats = np.int32(replica.length - 1)  # beyond the first iteration, of one token each
    if repeats > 0:
        _take_blocks_of_stretch(fleet, r, replica.length)
    kept = 0
    for place in range(replica.running):
        i = fleet.order[r, place]
        request = fleet.progress[i]
        if request.chunk > 0:
            before = request.computed
            total = fleet.questions[i].prompt_tokens + request.generated
            after = before + request.chunk
            request.chunk = 0
            request.computed = after + repeats
            _name_blocks(fleet, r, i, before // size, (after + repeats) // size)
            if after == total:
                if request.generated == 0:
                    request.first_token_ms = now_ms
                    replica.pending_ms -= request.work_ms
                    replica.last_first_ms = now_ms
                request.generated += 1 + repeats
        if request.generated >= fleet.questions[i].output_tokens:
            request.finish_ms = now_ms
            request.status = FINISHED
            replica.in_flight -= 1.0
            _leave_seat(fleet, r, i)
        else:
            fleet.order[r, kept] = i
            kept += 1
