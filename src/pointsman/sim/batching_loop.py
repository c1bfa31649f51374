"""The compiled event loop of a fleet that batches.

Events in the order of (time, kind, number): iterations that end, then replicas that die, slow or
join, then transfers that end, requests that come to their decode replica, and arrivals. One
arrival through it:

    accounts + holders + gauges -> view -> policy.choose -> candidate -> held, or its queue
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import typeof, types

from pointsman.core.compiled import Kernel, inner, inner_inlined
from pointsman.dispatch.accounts import count_sent, wait_falls_ms
from pointsman.dispatch.draws import uniform_draw
from pointsman.dispatch.holders import fill_cached_tokens
from pointsman.policies.policy import (
    CACHED_TOKENS,
    IN_FLIGHT,
    PARAMETERS_TYPE,
    REQUEST_TYPE,
    ROWS,
    signature_for,
)
from pointsman.sim.batching_engine import receive, start_iteration
from pointsman.sim.batching_state import (
    CAN_NEVER_FIT,
    FAILED,
    NO_REPLICA,
    NONE,
    REJECTED,
    Fleet,
    smallest_fleet,
)
from pointsman.sim.handoff import end_transfer, next_sent_ms, take_sent
from pointsman.sim.knowledge import expect_block, hear_events
from pointsman.sim.router_view import (
    fill_view,
    fits_nobody,
    list_candidates,
    needs_of,
    note_steps,
    note_waits,
    read_gauges,
    wait_ms,
    work_ms,
)
from pointsman.sim.routers import own_row
from pointsman.sim.seats import free_seat
from pointsman.sim.stretch import cut_stretch, finish_stretch, sync_stretch
from pointsman.sim.timeline import sample_all, sample_until
from pointsman.sim.traffic import (
    Traffic,
    end_of_request,
    hold,
    idle_traffic,
    is_awaited,
    let_go,
    look_at,
    next_arrival_ms,
    next_held,
    start,
    take_arrival,
    take_retry,
    wake,
)
from pointsman.sim.waiting import join_queue
from pointsman.workload.workload import Floats, Ints

# What the loop returns; else a row.
DONE, CHANGED = -1, -2

ITERATION, CHANGE, TRANSFER, SENT, ARRIVAL, NOTHING = range(6)


@inner_inlined
def _next_event(fleet: Fleet, traffic: Traffic) -> tuple[int, float, int]:
    """Kind, time and replica of what happens next."""
    first = 0
    for r in range(1, fleet.replicas.shape[0]):
        if fleet.replicas[r].end_ms < fleet.replicas[first].end_ms:
            first = r
    kind, now_ms = ITERATION, fleet.replicas[first].end_ms
    rules = traffic.rules[0]
    if rules.next_change < traffic.changes.shape[0]:
        change_ms = traffic.changes[rules.next_change].time_ms
        if change_ms < now_ms:
            kind, now_ms = CHANGE, change_ms
    if fleet.link[0].next_ms < now_ms:
        kind, now_ms = TRANSFER, fleet.link[0].next_ms
    sent_ms = next_sent_ms(fleet)
    if sent_ms < now_ms:
        kind, now_ms = SENT, sent_ms
    if rules.next_arrival < rules.requests:
        own_ms = fleet.questions[rules.next_arrival].arrival_ms
        arrival_ms = next_arrival_ms(traffic, own_ms)
        if arrival_ms < now_ms:
            kind, now_ms = ARRIVAL, arrival_ms
    if now_ms == np.inf:
        kind = NOTHING
    return kind, now_ms, first


@inner_inlined
def _end_transfer(fleet: Fleet, traffic: Traffic, now_ms: float) -> None:
    """A request's KV has come to its decode replica; its prefill replica frees it."""
    j = fleet.link[0].next_row
    i = j - traffic.rules[0].requests
    decode = int(fleet.progress[j].replica)
    prefill = int(fleet.progress[i].replica)
    sample_until(fleet, decode, now_ms)
    sample_until(fleet, prefill, now_ms)
    end_transfer(fleet, j, now_ms)
    receive(fleet, decode, j, now_ms)
    free_seat(fleet, prefill, i)
    if fleet.replicas[prefill].waiting > 0:
        wake(fleet, traffic, prefill, now_ms, 0)
    wake(fleet, traffic, decode, now_ms, 0)


@inner
def _join(fleet: Fleet, traffic: Traffic, r: int, i: int, now_ms: float) -> None:
    """The request comes to the replica's queue; an idle replica starts at once."""
    replica, engine = fleet.replicas[r], fleet.engines[r]
    is_first = replica.first_waiting == NONE or engine.by_priority == 1
    join_queue(fleet, r, i)
    has_seat = replica.running + replica.receiving < engine.max_num_seqs
    if replica.length == 0 or (is_first and has_seat):
        wake(fleet, traffic, r, now_ms, engine.see_late)


@inner
def _account(fleet: Fleet, r: int, i: int, cached_tokens: float, now_ms: float) -> None:
    """The router counts the request there, and expects its blocks there from now on."""
    flight, question = fleet.flights[i], fleet.questions[i]
    flight.sent_ms = now_ms
    if question.remote == 0:
        flight.work_ms = work_ms(fleet, r, i, cached_tokens)
        flight.uncached_tokens = np.int32(question.prompt_tokens - cached_tokens)
    fleet.progress[i].replica = r
    count_sent(fleet.in_flight, own_row(fleet, i, r), i, question.prompt_tokens)
    if fleet.knowledge.clock[0].keeps_holders == 1:
        first = question.router * fleet.knowledge.told.shape[0]
        for place in range(question.chain_start, question.chain_start + question.prompt_blocks):
            expect_block(fleet.knowledge, first, r, fleet.chain_blocks[place])


@inner
def _end_for_held(fleet: Fleet, traffic: Traffic, r: int, now_ms: float) -> None:
    """Let the stretch end with the iteration in which little enough will be left to do."""
    falls_ms = wait_falls_ms(fleet.in_flight, r, traffic.rules[0].hold_ms)
    if fleet.replicas[r].length > 1 and falls_ms < np.inf:
        cut_stretch(fleet, r, max(now_ms, np.nextafter(falls_ms, -np.inf)), 0)


@inner_inlined
def _dispatch(fleet: Fleet, traffic: Traffic, i: int, c: int, now_ms: float) -> None:
    """Send the request to the candidate."""
    r = int(fleet.in_flight.replica_of[c, 0]) - fleet.knowledge.clock[0].own
    sample_until(fleet, r, now_ms)
    decode = int(fleet.in_flight.replica_of[c, 1])
    fleet.progress[i].tries += 1
    if decode != NONE:
        _account(fleet, decode, int(fleet.questions[i].decode_row), 0.0, now_ms)
    _account(fleet, r, i, traffic.cached[r], now_ms)
    _join(fleet, traffic, r, i, now_ms)
    left_ms = fleet.replicas[r].end_ms - now_ms if fleet.replicas[r].length > 0 else 0.0
    traffic.waits[i, 3] = left_ms


@inner_inlined
def _request_key(fleet: Fleet, i: int) -> int:
    """The session's number; else one of the first block; else one of its own."""
    question = fleet.questions[i]
    if question.session >= 0:
        return 3 * int(question.session)
    if question.prompt_blocks > 0:
        return 3 * int(fleet.chain_blocks[question.chain_start]) + 1
    return 3 * i + 2


@inner_inlined
def _refuse(fleet: Fleet, traffic: Traffic, i: int, now_ms: float) -> None:
    """No candidate can serve the request: none ever, or none that lives."""
    never = fits_nobody(fleet, traffic, i)
    fleet.progress[i].status = REJECTED if never else FAILED
    fleet.progress[i].cause = CAN_NEVER_FIT if never else NO_REPLICA
    end_of_request(traffic, now_ms)


def batching_loop(reads: frozenset[str]) -> Kernel:
    """The loop for policies that read these signals."""
    return _loop(IN_FLIGHT in reads)


@cache
def _loop(reads_in_flight: bool) -> Kernel:  # noqa: PLR0915 - one event loop
    """The loop for policies that take the requests in flight, or do not.

    It returns DONE; or, to be called again, CHANGED where a replica changes or a request comes to
    a decode replica that is gone, which are rare and handled outside (``membership.py``); or the
    row of a request for which the policy chose no candidate, or gave none of its reasons.
    """

    def run(  # noqa: PLR0913, PLR0917, PLR0912, PLR0915 - one event loop, over all that a run has
        choose: Any,
        parameters: Floats,
        fleet: Fleet,
        traffic: Traffic,
        buffer: Floats,
        homes: Ints,
        reason_of: Any,
        request_row: Any,
        reasons: int,
        seed: int,
    ) -> int:
        request, rules = request_row[0], traffic.rules[0]
        listed = fleet.in_flight.replica_of
        clock = fleet.knowledge.clock[0]
        size = fleet.engines[0].block_size
        replicas = fleet.replicas.shape[0]
        is_held = False
        while True:
            while rules.starting > 0:
                rules.starting -= 1
                started = traffic.starting[rules.starting]
                start_iteration(fleet, started, clock.now_ms)
                if rules.held > 0 and is_awaited(traffic, started):
                    _end_for_held(fleet, traffic, started, clock.now_ms)
            # Who is to be routed now.
            now_ms = clock.now_ms
            if rules.looking_at != NONE:
                awaited = rules.looking_at
                i = NONE
                if wait_ms(fleet, traffic, awaited, now_ms) <= rules.hold_ms:
                    i = next_held(traffic, now_ms)
                if i == NONE:
                    rules.looking_at = NONE
                    continue
                is_held = True
            elif rules.retrying > 0:
                i = take_retry(traffic)
                is_held = False
            else:
                kind, now_ms, r = _next_event(fleet, traffic)
                if kind == NOTHING:
                    sample_all(fleet, clock.now_ms)
                    return DONE
                clock.now_ms = now_ms
                if rules.gauges == 1 and clock.metrics_age_ms > 0.0:
                    if kind == ITERATION:
                        read_gauges(fleet, r, now_ms)
                    else:
                        for k in range(replicas):
                            read_gauges(fleet, k, now_ms)
                if kind == ITERATION:
                    finished = fleet.in_flight.finished[0]
                    sample_until(fleet, r, now_ms)
                    finish_stretch(fleet, r)
                    for _ in range(fleet.in_flight.finished[0] - finished):
                        end_of_request(traffic, now_ms)
                    start(traffic, r)
                    if rules.held > 0:
                        look_at(traffic, r)
                    continue
                if kind == CHANGE:
                    sample_all(fleet, now_ms)
                    return CHANGED
                if kind == TRANSFER:
                    _end_transfer(fleet, traffic, now_ms)
                    continue
                if kind == SENT:
                    j = take_sent(fleet)
                    if j != NONE:
                        r = int(fleet.progress[j].replica)
                        if fleet.replicas[r].alive == 0:
                            sample_all(fleet, now_ms)
                            rules.lost = j - rules.requests
                            return CHANGED
                        sample_until(fleet, r, now_ms)
                        fleet.questions[j].arrival_ms = now_ms
                        _join(fleet, traffic, r, j, now_ms)
                    continue
                i = take_arrival(traffic)
                is_held = False
                fleet.questions[i].arrival_ms = now_ms

            # What the policy sees.
            question = fleet.questions[i]
            prompt = question.prompt_tokens
            session = question.session
            router = question.router
            own = router * replicas
            clock.own = own
            count = listed.shape[0]
            if rules.same_columns == 0:
                count = list_candidates(fleet, traffic, i)
                if count == 0:
                    if is_held:
                        let_go(traffic, i)
                    _refuse(fleet, traffic, i, now_ms)
                    continue
            view = buffer[: ROWS * count].reshape(ROWS, count)
            request.now_ms = now_ms
            request.prompt_tokens = prompt
            request.sequence = traffic.routed_by[router]
            request.home = NONE
            if rules.session == 1:
                last = homes[router, 2 * session] if session >= 0 else NONE
                if last != NONE:
                    for c in range(count):
                        is_there = listed[c, 0] - own == last
                        if is_there and listed[c, 1] == homes[router, 2 * session + 1]:
                            request.home = c
            request.random = uniform_draw(seed, rules.routed)
            request.key = _request_key(fleet, i)
            if rules.gauges == 1:
                for k in range(replicas):
                    read_gauges(fleet, k, now_ms)
            if rules.prefix == 1:
                sample_all(fleet, now_ms)
                for k in range(replicas):
                    sync_stretch(fleet, k, now_ms)
                hear_events(fleet.knowledge, now_ms)
                first = question.chain_start
                last_block = first + min(question.prompt_blocks, (prompt - 1) // size)
                coverage = (size, (last_block - first) * size)
                blocks = fleet.knowledge.told.shape[0]
                holders = fleet.knowledge.holders[router * blocks : (router + 1) * blocks]
                chain_blocks = fleet.chain_blocks
                fill_cached_tokens(
                    holders, chain_blocks, first, last_block, coverage, traffic.cached
                )
                longest = 0.0
                for c in range(count):
                    tokens = traffic.cached[listed[c, 0] - own]
                    view[CACHED_TOKENS, c] = tokens
                    longest = max(longest, tokens)
                request.longest_hit_tokens = longest
            if rules.steps == 1:
                note_steps(fleet, now_ms)
            fill_view(fleet, traffic, i, view, now_ms)
            if reads_in_flight:
                c, reason = choose(request, view, parameters, fleet.in_flight)
            else:
                c, reason = choose(request, view, parameters)
            if c < 0 or c >= count or reason < 0 or reason >= reasons:
                return i
            if rules.queue == 1:
                note_waits(traffic, i, view, c, now_ms)
            rules.routed += 1
            traffic.routed_by[router] += 1
            reason_of[i] = reason

            # What happens with it.
            k = int(listed[c, 0]) - own
            if rules.holds == 1:
                too_long = wait_ms(fleet, traffic, k, now_ms) > rules.hold_ms
                has_room = is_held or rules.held < rules.most_held
                overtakes = not is_held and rules.held > 0 and is_awaited(traffic, k)
                if has_room and (too_long or overtakes):
                    hold(traffic, i, k, needs_of(fleet, traffic, k, i), now_ms)
                    _end_for_held(fleet, traffic, k, now_ms)
                    if not too_long:  # it goes behind those before it in the order
                        look_at(traffic, k)
                    continue
                if is_held:
                    let_go(traffic, i)
            if session >= 0:
                homes[router, 2 * session] = k
                homes[router, 2 * session + 1] = listed[c, 1]
            _dispatch(fleet, traffic, i, c, now_ms)

    signature = types.int64(
        types.FunctionType(signature_for(frozenset((IN_FLIGHT,) if reads_in_flight else ()))),
        PARAMETERS_TYPE,
        typeof(smallest_fleet()),
        typeof(idle_traffic(1, 1)),
        types.Array(types.float64, 1, "C"),
        types.Array(types.int32, 2, "C"),
        types.Array(types.int8, 1, "C"),
        types.Array(REQUEST_TYPE, 1, "C"),
        types.int64,
        types.int64,
    )
    return Kernel(run, signature)
