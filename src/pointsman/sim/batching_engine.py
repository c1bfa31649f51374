"""Who is scheduled on a replica: the engine model ``vllm-v1`` (docs/simulator.md).

start_iteration     who gets which chunk, who is admitted, who is preempted; how long it takes
receive             a request whose KV has come runs from the next iteration on

What a stretch of iterations then does: ``stretch.py``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pointsman.core.compiled import inner, inner_inlined
from pointsman.sim.batching_state import NONE, RECEIVING, RUNNING, Fleet
from pointsman.sim.handoff import begin_transfer
from pointsman.sim.seats import (
    blocks_for,
    cached_prefix,
    count_recomputed,
    free_seat,
    hold_blocks,
    mark_own_blocks,
    name_blocks,
    take_seat,
)
from pointsman.sim.stretch import stretch_length, stretch_ms, sync_stretch
from pointsman.sim.waiting import go_back, goes_later, leave_queue


class Work(NamedTuple):
    """What an iteration does, as far as it is scheduled; what of its tokens is left to give."""

    budget_tokens: np.int64
    prefill_tokens: np.int64
    decodes: np.int64
    kv_tokens: float  # read by those that decode
    attention: float  # of the prefills: sum of chunk * (computed + chunk / 2)


@inner
def start_iteration(fleet: Fleet, r: int, now_ms: float) -> None:
    """Start what comes next on the replica; it becomes idle when nothing runs or waits."""
    work, preempted = _schedule_running(fleet, r)
    may_follow = False
    if not preempted:
        work, may_follow = _schedule_waiting(fleet, r, work, now_ms)
    _begin(fleet, r, work, now_ms)
    replica = fleet.replicas[r]
    if replica.running > 0:
        only_decodes = work.prefill_tokens == 0 and work.decodes == replica.running
        if only_decodes and not preempted and not may_follow:
            replica.length = stretch_length(fleet, r)
        replica.end_ms = now_ms + stretch_ms(replica.base_ms, replica.growth_ms, replica.length)


@inner_inlined
def _schedule_running(fleet: Fleet, r: int) -> tuple[Work, bool]:
    """Chunks for those that run, in the order of admission; and whether any was preempted."""
    replica, engine = fleet.replicas[r], fleet.engines[r]
    work = Work(np.int64(engine.max_num_batched_tokens), np.int64(0), np.int64(0), 0.0, 0.0)
    preempted = False
    place = 0
    while place < replica.running:
        i = fleet.order[r, place]
        request = fleet.progress[i]
        chunk = min(_total_tokens(fleet, i) - request.computed, work.budget_tokens)
        if chunk > 0:
            blocks = blocks_for(request.computed + chunk, engine.block_size)
            kept = True
            while kept and blocks - request.held_blocks > replica.free:
                preempted = True
                victim = _victim_place(fleet, r)
                kept = victim != place
                if victim < place:  # its turn in this iteration is taken back
                    work = _take_back(fleet, work, fleet.order[r, victim])
                    place -= 1
                _preempt(fleet, r, victim)
            if not kept:
                break
            hold_blocks(fleet, r, i, blocks)
            work = _give(fleet, work, i, chunk)
        place += 1
    return work, preempted


@inner_inlined
def _schedule_waiting(fleet: Fleet, r: int, work: Work, now_ms: float) -> tuple[Work, bool]:
    """Admit those that wait, the first one first, while there is room; and whether the next one
    may be admitted an iteration later, though nobody ends until then."""
    replica, engine = fleet.replicas[r], fleet.engines[r]
    size = engine.block_size
    while (
        replica.first_waiting != NONE
        and work.budget_tokens > 0
        and replica.running + replica.receiving < engine.max_num_seqs
        and replica.seats_free > 0
    ):
        i = replica.first_waiting
        if _came_late(fleet, r, i):
            return work, True
        request, total = fleet.progress[i], _total_tokens(fleet, i)
        is_fetched = fleet.questions[i].remote == 1 and np.isnan(request.received_ms)
        hits, idle = cached_prefix(fleet, r, i, (total - 1) // size)
        cached = hits * size
        chunk = total - cached if is_fetched else min(total - cached, work.budget_tokens)
        reserved = total if engine.reserve_full == 1 else cached + chunk
        if blocks_for(reserved, size) - hits > replica.free - idle:
            # Reserved for a chunk only, less will do once part of the prefix is evicted.
            return work, engine.reserve_full == 0 and idle > 0 and total > work.budget_tokens
        leave_queue(fleet, r, i)
        take_seat(fleet, r, i, hits)
        if np.isnan(request.scheduled_ms):
            request.scheduled_ms = now_ms
            request.cached_tokens = cached
            count_recomputed(fleet, r, i, hits)
        hold_blocks(fleet, r, i, blocks_for(cached + chunk, size))
        if is_fetched:
            request.status = RECEIVING
            replica.receiving += 1
            begin_transfer(fleet, i, hits, now_ms)
        else:
            _run(fleet, r, i, cached)
            work = _give(fleet, work, i, chunk)
    return work, False


@inner_inlined
def _begin(fleet: Fleet, r: int, work: Work, now_ms: float) -> None:
    """The iteration begins, a stretch of one; where nothing runs the replica is idle."""
    replica, engine = fleet.replicas[r], fleet.engines[r]
    replica.start_ms = now_ms
    replica.decodes = work.decodes
    replica.used_at_start = replica.capacity - replica.free
    replica.least_free = min(replica.least_free, replica.free)
    if replica.running == 0:
        replica.end_ms = np.inf
        replica.length = 0
        return
    replica.base_ms = (
        engine.per_iteration_ms
        + engine.per_prefill_token_ms * work.prefill_tokens
        + engine.per_decode_ms * work.decodes
        + engine.per_kv_token_ms * work.kv_tokens
        + engine.per_attention_ms * work.attention
    )
    replica.growth_ms = engine.per_kv_token_ms * work.decodes
    replica.length = 1
    replica.prefill_tokens += work.prefill_tokens
    replica.events += 1


@inner_inlined
def _give(fleet: Fleet, work: Work, i: int, chunk: int) -> Work:
    """The work with the request's chunk in it."""
    request = fleet.progress[i]
    request.chunk = chunk
    left, computed = work.budget_tokens - chunk, request.computed
    if _only_decodes(fleet, i):
        kv_tokens = work.kv_tokens + (computed + 1)
        return Work(left, work.prefill_tokens, work.decodes + 1, kv_tokens, work.attention)
    attention = work.attention + chunk * (computed + 0.5 * chunk)
    return Work(left, work.prefill_tokens + chunk, work.decodes, work.kv_tokens, attention)


@inner_inlined
def _take_back(fleet: Fleet, work: Work, i: int) -> Work:
    """The work without what the request got in this iteration."""
    chunk, computed = fleet.progress[i].chunk, fleet.progress[i].computed
    left = work.budget_tokens + chunk
    if _only_decodes(fleet, i):
        kv_tokens = work.kv_tokens - (computed + 1)
        return Work(left, work.prefill_tokens, work.decodes - 1, kv_tokens, work.attention)
    attention = work.attention - chunk * (computed + 0.5 * chunk)
    return Work(left, work.prefill_tokens - chunk, work.decodes, work.kv_tokens, attention)


@inner_inlined
def _total_tokens(fleet: Fleet, i: int) -> Any:
    """Tokens of the prompt and of what was generated so far."""
    return fleet.questions[i].prompt_tokens + fleet.flights[i].tokens_out


@inner_inlined
def _only_decodes(fleet: Fleet, i: int) -> bool:
    """Whether the request's next token follows from the one before it alone."""
    computed = fleet.progress[i].computed
    return fleet.flights[i].tokens_out > 0 and computed == _total_tokens(fleet, i) - 1  # type: ignore[no-any-return]


@inner_inlined
def _came_late(fleet: Fleet, r: int, i: int) -> bool:
    """Whether the engine scheduled this iteration before the request came (``see_late``)."""
    replica = fleet.replicas[r]
    if fleet.engines[r].see_late == 0 or replica.running == 0 or replica.length == 0:
        return False
    came_ms = fleet.flights[i].sent_ms
    if fleet.questions[i].remote == 1:
        came_ms = fleet.questions[i].arrival_ms
    before_last = replica.length - 1
    elapsed_ms = stretch_ms(replica.base_ms, replica.growth_ms, before_last)
    return came_ms > replica.start_ms + elapsed_ms  # type: ignore[no-any-return]


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
    sync_stretch(fleet, r, now_ms)  # a block whose id lies in one evicted by now takes the id
    prompt = fleet.questions[i].prompt_tokens
    fleet.replicas[r].receiving -= 1
    fleet.progress[i].received_ms = now_ms
    _run(fleet, r, i, prompt - 1)
    if fleet.engines[r].shares_late == 0:
        name_blocks(fleet, r, i, 0, prompt // fleet.engines[r].block_size)
