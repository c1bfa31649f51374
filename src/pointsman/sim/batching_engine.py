"""One replica that batches continuously: the engine model ``vllm-v1`` (docs/simulator.md).

start_iteration     who gets which chunk, who is admitted, who is preempted; how long it takes
finish_stretch      what was computed, generated and finished
sync_stretch        the blocks taken and filled so far, for whoever looks in between
cut_stretch         end early, for somebody who may be admitted
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pointsman.core.compiled import inner, inner_inlined
from pointsman.dispatch.accounts import count_ended, count_first_token, count_tokens, learn_output
from pointsman.metrics.intertoken import gap_bin, gap_bin_end_ms
from pointsman.sim.batching_state import (
    FINISHED,
    HANDED_OVER,
    NONE,
    RECEIVING,
    RUNNING,
    WAITING,
    Fleet,
)
from pointsman.sim.handoff import begin_transfer, send_to_decode
from pointsman.sim.knowledge import expect_no_more
from pointsman.sim.kv_cache import name_content, release_slot, take_slot, use_slot


@inner_inlined
def blocks_for(tokens: int, block_size: int) -> int:
    """How many blocks hold so many tokens."""
    return (tokens + block_size - 1) // block_size


@inner_inlined
def _seat_row(fleet: Fleet, r: int, i: int) -> int:
    return r * fleet.order.shape[1] + fleet.progress[i].seat  # type: ignore[no-any-return]


@inner
def _hold_blocks(fleet: Fleet, r: int, i: int, blocks: int) -> None:
    """Take slots until the request holds so many."""
    row = _seat_row(fleet, r, i)
    for place in range(fleet.progress[i].held_blocks, blocks):
        fleet.held[row, place] = take_slot(fleet, r)
        fleet.progress[i].held_blocks = place + 1


@inner_inlined
def _name_blocks(fleet: Fleet, r: int, i: int, first: int, last: int) -> None:
    """Blocks number first .. last - 1 of the request are full: those with an id are cached."""
    row = _seat_row(fleet, r, i)
    start = fleet.questions[i].chain_start
    for place in range(first, min(last, fleet.questions[i].known_blocks)):
        name_content(fleet, r, fleet.held[row, place], fleet.chain_blocks[start + place])


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


@inner_inlined
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


@inner_inlined
def _goes_later(fleet: Fleet, i: int, j: int) -> bool:
    """Whether request i comes after j where the engine goes by priority."""
    mine, other = fleet.questions[i], fleet.questions[j]
    if mine.priority != other.priority:
        return mine.priority > other.priority  # type: ignore[no-any-return]
    return mine.arrival_ms > other.arrival_ms or (mine.arrival_ms == other.arrival_ms and i > j)


@inner_inlined
def _victim_place(fleet: Fleet, r: int) -> int:
    """Who is preempted: the one admitted last; by priority, the one that goes last."""
    victim = fleet.replicas[r].running - 1
    if fleet.engines[r].by_priority == 1:
        for place in range(victim):
            if _goes_later(fleet, fleet.order[r, place], fleet.order[r, victim]):
                victim = place
    return victim  # type: ignore[no-any-return]


@inner_inlined
def _preempt(fleet: Fleet, r: int, victim: int) -> None:
    """The request at this place loses its seat and goes to the front of the queue."""
    replica = fleet.replicas[r]
    i = fleet.order[r, victim]
    request = fleet.progress[i]
    _mark_own_blocks(fleet, r, i)
    free_seat(fleet, r, i)
    replica.running -= 1
    for place in range(victim, replica.running):
        fleet.order[r, place] = fleet.order[r, place + 1]
    request.computed = 0
    request.chunk = 0
    request.status = WAITING
    request.preemptions += 1
    if fleet.engines[r].by_priority == 1:
        _join_by_priority(fleet, r, i)
    else:
        _join_behind(fleet, r, i, NONE)


@inner_inlined
def _join_behind(fleet: Fleet, r: int, i: int, before: int) -> None:
    """The request waits behind that one, or in front of all."""
    replica = fleet.replicas[r]
    if before == NONE:
        fleet.progress[i].following = replica.first_waiting
        replica.first_waiting = i
    else:
        fleet.progress[i].following = fleet.progress[before].following
        fleet.progress[before].following = i
    if fleet.progress[i].following == NONE:
        replica.last_waiting = i
    replica.waiting += 1


@inner
def _join_by_priority(fleet: Fleet, r: int, i: int) -> None:
    before, after = NONE, fleet.replicas[r].first_waiting
    while after != NONE and _goes_later(fleet, i, after):
        before, after = after, fleet.progress[after].following
    _join_behind(fleet, r, i, before)


@inner_inlined
def join_queue(fleet: Fleet, r: int, i: int) -> None:
    """The request waits behind all others; by priority, behind those that go before it."""
    fleet.progress[i].status = WAITING
    replica = fleet.replicas[r]
    if replica.first_waiting == NONE:
        _join_behind(fleet, r, i, NONE)
    elif fleet.engines[r].by_priority == 1:
        _join_by_priority(fleet, r, i)
    else:
        _join_behind(fleet, r, i, replica.last_waiting)


@inner_inlined
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


@inner_inlined
def _admit(fleet: Fleet, r: int, i: int, hits: int) -> None:
    """Take the first request that waits from the queue, give it a seat and the blocks it hits."""
    replica, request = fleet.replicas[r], fleet.progress[i]
    replica.first_waiting = request.following
    replica.waiting -= 1
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


@inner_inlined
def _blocks_lacking(fleet: Fleet, r: int, ahead: Any) -> int:
    """Blocks that the running requests need beyond theirs to compute ``ahead`` more tokens each."""
    size = fleet.engines[0].block_size
    lacking = 0
    for place in range(fleet.replicas[r].running):
        request = fleet.progress[fleet.order[r, place]]
        lacking += max(0, blocks_for(request.computed + ahead, size) - request.held_blocks)
    return lacking


@inner
def _stretch_length(fleet: Fleet, r: int) -> Any:
    """Iterations until a request finishes or fills a block that has an id, or while there are
    blocks."""
    size = fleet.engines[r].block_size
    most = np.int64(1) << 40
    for place in range(fleet.replicas[r].running):
        i = fleet.order[r, place]
        question, request = fleet.questions[i], fleet.progress[i]
        most = min(most, np.int64(question.output_tokens - fleet.flights[i].tokens_out))
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


@inner
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
        total = fleet.questions[i].prompt_tokens + fleet.flights[i].tokens_out
        chunk = min(total - computed, budget)
        if chunk > 0:
            blocks = blocks_for(computed + chunk, size)
            kept = True
            while kept and blocks - request.held_blocks > replica.free:
                preempted = True
                victim = _victim_place(fleet, r)
                kept = victim != place
                if victim < place:  # its turn in this iteration is taken back
                    v = fleet.order[r, victim]
                    taken, done = fleet.progress[v].chunk, fleet.progress[v].computed
                    budget += taken
                    if _only_decodes(fleet, v, done):
                        decodes -= 1
                        kv_tokens -= done + 1
                    else:
                        prefill -= taken
                        attention -= taken * (done + 0.5 * taken)
                    place -= 1
                _preempt(fleet, r, victim)
            if not kept:
                break
            _hold_blocks(fleet, r, i, blocks)
            request.chunk = chunk
            budget -= chunk
            if _only_decodes(fleet, i, computed):
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
        and replica.running + replica.receiving < engine.max_num_seqs
        and replica.seats_free > 0
    ):
        i = replica.first_waiting
        request = fleet.progress[i]
        came_ms = fleet.flights[i].sent_ms
        if fleet.questions[i].remote == 1:
            came_ms = fleet.questions[i].arrival_ms
        came_late = came_ms > last_start_ms
        if engine.see_late == 1 and came_late and replica.running > 0 and replica.length > 0:
            may_change = True
            break
        total = fleet.questions[i].prompt_tokens + fleet.flights[i].tokens_out
        is_fetched = fleet.questions[i].remote == 1 and np.isnan(request.received_ms)
        hits, idle = _cached_prefix(fleet, r, i, (total - 1) // size)
        cached = hits * size
        chunk = total - cached if is_fetched else min(total - cached, budget)
        reserved = total if engine.reserve_full == 1 else cached + chunk
        if blocks_for(reserved, size) - hits > replica.free - idle:
            break
        _admit(fleet, r, i, hits)
        if np.isnan(request.scheduled_ms):
            request.scheduled_ms = now_ms
            request.cached_tokens = cached
        _hold_blocks(fleet, r, i, blocks_for(cached + chunk, size))
        if is_fetched:
            request.status = RECEIVING
            replica.receiving += 1
            begin_transfer(fleet, i, hits, now_ms)
            continue
        _run(fleet, r, i, cached)
        request.chunk = chunk
        budget -= chunk
        if _only_decodes(fleet, i, cached):  # a resumed one
            decodes += 1
            kv_tokens += cached + 1
        else:
            prefill += chunk
            attention += chunk * (cached + 0.5 * chunk)

    # How long it takes, and how often it can be repeated.
    replica.start_ms = now_ms
    replica.decodes = decodes
    replica.used_at_start = replica.capacity - replica.free
    replica.least_free = min(replica.least_free, replica.free)
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
    replica.prefill_tokens += prefill
    if prefill == 0 and decodes == replica.running and not may_change:
        replica.length = _stretch_length(fleet, r)
    replica.events += 1
    replica.end_ms = now_ms + stretch_ms(replica.base_ms, replica.growth_ms, replica.length)


@inner_inlined
def _only_decodes(fleet: Fleet, i: int, computed: int) -> bool:
    """Whether the request's next token follows from the one before it alone."""
    tokens_out = fleet.flights[i].tokens_out
    return tokens_out > 0 and computed == fleet.questions[i].prompt_tokens + tokens_out - 1  # type: ignore[no-any-return]


@inner_inlined
def _run(fleet: Fleet, r: int, i: int, computed: int) -> None:
    """The request runs from now on, with so many tokens in its blocks."""
    replica, request = fleet.replicas[r], fleet.progress[i]
    fleet.order[r, replica.running] = i
    replica.running += 1
    request.status = RUNNING
    request.computed = computed


@inner
def receive(fleet: Fleet, r: int, i: int, now_ms: float) -> None:
    """The request's KV has come: it runs from the next iteration on, which computes its last
    prompt token again."""
    prompt = fleet.questions[i].prompt_tokens
    fleet.replicas[r].receiving -= 1
    fleet.progress[i].received_ms = now_ms
    _run(fleet, r, i, prompt - 1)
    _name_blocks(fleet, r, i, 0, prompt // fleet.engines[r].block_size)


@inner_inlined
def stretch_ms(base_ms: float, growth_ms: float, iterations: int) -> float:
    """How long so many iterations take, the first one ``base_ms``, each ``growth_ms`` more."""
    return iterations * base_ms + growth_ms * (0.5 * iterations * (iterations - 1))


@inner_inlined
def iterations_done(fleet: Fleet, r: int, now_ms: float) -> int:
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


@inner
def sync_stretch(fleet: Fleet, r: int, now_ms: float) -> None:
    """Take the blocks of the stretch as far as it has come; none of them has an id yet."""
    done = iterations_done(fleet, r, now_ms)
    if done > 0:
        _take_blocks_of_stretch(fleet, r, done + 1)


@inner
def _take_blocks_of_stretch(fleet: Fleet, r: int, started: int) -> None:
    """The blocks for the first so many iterations of the stretch."""
    size = fleet.engines[r].block_size
    for place in range(fleet.replicas[r].running):
        i = fleet.order[r, place]
        if fleet.progress[i].chunk > 0:
            tokens = fleet.progress[i].computed + fleet.progress[i].chunk + started - 1
            _hold_blocks(fleet, r, i, blocks_for(tokens, size))


@inner
def cut_stretch(fleet: Fleet, r: int, now_ms: float, further: int) -> None:
    """End the stretch with the iteration that runs; where it began before now, so many further
    ones."""
    replica = fleet.replicas[r]
    done = iterations_done(fleet, r, now_ms)
    began_ms = replica.start_ms + stretch_ms(replica.base_ms, replica.growth_ms, done)
    length = done + 1 + (further if began_ms < now_ms else 0)
    if length < replica.length:
        replica.length = length
        elapsed_ms = stretch_ms(replica.base_ms, replica.growth_ms, length)
        replica.end_ms = replica.start_ms + elapsed_ms


@inner
def finish_stretch(fleet: Fleet, r: int) -> None:
    """What the iterations that end now computed and generated, and who is finished."""
    replica, known = fleet.replicas[r], fleet.in_flight
    size = fleet.engines[r].block_size
    now_ms = replica.end_ms
    repeats = int(replica.length - 1)  # beyond the first iteration, of one token each
    if repeats > 0:
        _take_blocks_of_stretch(fleet, r, replica.length)
    _count_work(fleet, r)
    known.accounts[r].steps = 0
    first_ms = replica.start_ms + replica.base_ms  # the end of the first iteration
    steady = 0  # those whose last token came when it began
    kept = 0
    for place in range(replica.running):
        i = fleet.order[r, place]
        request, flight = fleet.progress[i], fleet.flights[i]
        question = fleet.questions[i]
        if request.chunk > 0:
            before = request.computed
            total = question.prompt_tokens + flight.tokens_out
            after = before + request.chunk
            request.chunk = 0
            request.computed = after + repeats
            _name_blocks(fleet, r, i, before // size, (after + repeats) // size)
            if after == total:
                if np.isnan(flight.first_token_ms):
                    count_first_token(known, r, i, question.prompt_tokens, now_ms)
                elif request.last_token_ms == replica.start_ms:
                    steady += 1
                else:
                    _count_gaps(fleet, r, 1, first_ms - request.last_token_ms)
                request.last_token_ms = now_ms
                count_tokens(known, r, i, 1 + repeats)
        if flight.tokens_out >= question.output_tokens:
            _finish(fleet, r, i, now_ms)
        else:
            fleet.order[r, kept] = i
            kept += 1
    replica.running = kept
    if steady > 0:
        _count_gaps(fleet, r, steady, replica.base_ms)
    if repeats > 0:
        _count_growing_gaps(fleet, r, repeats)


@inner_inlined
def _count_gaps(fleet: Fleet, r: int, tokens: int, gap_ms: float) -> None:
    fleet.gaps[r, gap_bin(gap_ms)] += tokens
    fleet.replicas[r].gap_total_ms += tokens * gap_ms


@inner
def _count_growing_gaps(fleet: Fleet, r: int, repeats: int) -> None:
    """The gaps of the iterations of a stretch after its first one, bin by bin."""
    replica = fleet.replicas[r]
    base_ms, growth_ms = replica.base_ms, replica.growth_ms
    done = 0
    while done < repeats:
        found = gap_bin(base_ms + growth_ms * (done + 1))
        last = repeats
        if growth_ms > 0.0:
            last = int((gap_bin_end_ms(found) - base_ms) / growth_ms)
        last = min(repeats, max(last, done + 1))
        fleet.gaps[r, found] += replica.decodes * (last - done)
        done = last
    total_ms = stretch_ms(base_ms, growth_ms, repeats + 1) - base_ms
    replica.gap_total_ms += replica.decodes * total_ms


@inner_inlined
def _count_work(fleet: Fleet, r: int) -> None:
    replica = fleet.replicas[r]
    took_ms = replica.end_ms - replica.start_ms
    used = replica.capacity - replica.free
    replica.iterations += replica.length
    replica.decode_tokens += replica.decodes * replica.length
    replica.busy_ms += took_ms
    replica.kv_block_ms += 0.5 * took_ms * (replica.used_at_start + used)
    replica.least_free = min(replica.least_free, replica.free)


@inner_inlined
def _finish(fleet: Fleet, r: int, i: int, now_ms: float) -> None:
    """The request is done there. A prefill by itself keeps its blocks until they are fetched."""
    request = fleet.progress[i]
    request.finish_ms = now_ms
    end_account(fleet, r, i)
    if fleet.questions[i].decode_row == NONE:
        request.status = FINISHED
        learn_output(fleet.in_flight, fleet.flights[i].tokens_out)
        free_seat(fleet, r, i)
    else:
        request.status = HANDED_OVER
        send_to_decode(fleet, i, now_ms)


@inner
def end_account(fleet: Fleet, r: int, i: int) -> None:
    """The router counts the request there no more, nor expects its blocks."""
    question = fleet.questions[i]
    count_ended(fleet.in_flight, r, i, question.prompt_tokens)
    if fleet.knowledge.clock[0].keeps_holders == 1:
        for place in range(question.chain_start, question.chain_start + question.prompt_blocks):
            expect_no_more(fleet.knowledge, r, fleet.chain_blocks[place])
