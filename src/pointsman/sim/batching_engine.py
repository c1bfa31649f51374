"""Who is scheduled on a replica: the engine model ``vllm-v1`` (docs/simulator.md).

start_iteration     who gets which chunk, who is admitted, who is preempted; how long it takes
receive             a request whose KV has come runs from the next iteration on

What a stretch of iterations then does: ``stretch.py``.
"""

from __future__ import annotations

import numpy as np

from pointsman.core.compiled import inner, inner_inlined
from pointsman.sim.batching_state import NONE, RECEIVING, RUNNING, Fleet
from pointsman.sim.handoff import begin_transfer
from pointsman.sim.seats import (
    blocks_for,
    cached_prefix,
    free_seat,
    hold_blocks,
    mark_own_blocks,
    name_blocks,
    take_seat,
)
from pointsman.sim.stretch import stretch_length, stretch_ms
from pointsman.sim.waiting import go_back, goes_later, leave_queue


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
            hold_blocks(fleet, r, i, blocks)
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
        hits, idle = cached_prefix(fleet, r, i, (total - 1) // size)
        cached = hits * size
        chunk = total - cached if is_fetched else min(total - cached, budget)
        reserved = total if engine.reserve_full == 1 else cached + chunk
        if blocks_for(reserved, size) - hits > replica.free - idle:
            break
        leave_queue(fleet, r, i)
        take_seat(fleet, r, i, hits)
        if np.isnan(request.scheduled_ms):
            request.scheduled_ms = now_ms
            request.cached_tokens = cached
        hold_blocks(fleet, r, i, blocks_for(cached + chunk, size))
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
        replica.length = stretch_length(fleet, r)
    replica.events += 1
    replica.end_ms = now_ms + stretch_ms(replica.base_ms, replica.growth_ms, replica.length)


@inner_inlined
def _only_decodes(fleet: Fleet, i: int, computed: int) -> bool:
    """Whether the request's next token follows from the one before it alone."""
    tokens_out = fleet.flights[i].tokens_out
    return tokens_out > 0 and computed == fleet.questions[i].prompt_tokens + tokens_out - 1  # type: ignore[no-any-return]


@inner_inlined
def _victim_place(fleet: Fleet, r: int) -> int:
    """Who is preempted: the one admitted last; by priority, the one that goes last."""
    victim = fleet.replicas[r].running - 1
    if fleet.engines[r].by_priority == 1:
        for place in range(victim):
            if goes_later(fleet, fleet.order[r, place], fleet.order[r, victim]):
                victim = place
    return victim  # type: ignore[no-any-return]


@inner_inlined
def _preempt(fleet: Fleet, r: int, victim: int) -> None:
    """The request at this place loses its seat and goes to the front of the queue."""
    replica = fleet.replicas[r]
    i = fleet.order[r, victim]
    request = fleet.progress[i]
    mark_own_blocks(fleet, r, i)
    free_seat(fleet, r, i)
    replica.running -= 1
    for place in range(victim, replica.running):
        fleet.order[r, place] = fleet.order[r, place + 1]
    request.computed = 0
    request.chunk = 0
    request.preemptions += 1
    go_back(fleet, r, i)


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
    name_blocks(fleet, r, i, 0, prompt // fleet.engines[r].block_size)
