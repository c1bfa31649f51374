"""Replicas that die, slow down or join, and what becomes of the requests there.

A request whose first token had come fails: its client has part of an answer. Any other one is
routed again, as the live router does, up to a number of tries.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numba import typeof, types

from pointsman.core.compiled import Kernel, inner, inner_inlined
from pointsman.sim.batching_state import (
    DIED_MID_STREAM,
    FAILED,
    HANDED_OVER,
    NONE,
    RECEIVING,
    RUNNING,
    TRIES_USED,
    UNSENT,
    WAITING,
    Fleet,
    smallest_fleet,
)
from pointsman.sim.handoff import end_transfer
from pointsman.sim.knowledge import forget_replica
from pointsman.sim.kv_cache import clear_cache
from pointsman.sim.seats import free_seat
from pointsman.sim.stretch import (
    cut_stretch,
    end_account,
    finish_stretch,
    iterations_done,
    stretch_ms,
)
from pointsman.sim.traffic import (
    Traffic,
    ask_again,
    end_of_request,
    idle_traffic,
    look_at,
    wake,
)

DIES, SLOWS, JOINS = range(3)


@inner_inlined
def _leave_order(fleet: Fleet, r: int, i: int) -> None:
    kept = 0
    for place in range(fleet.replicas[r].running):
        if fleet.order[r, place] != i:
            fleet.order[r, kept] = fleet.order[r, place]
            kept += 1
    fleet.replicas[r].running = kept


@inner_inlined
def _leave_queue(fleet: Fleet, r: int, i: int) -> None:
    replica = fleet.replicas[r]
    before, at = NONE, replica.first_waiting
    while at != i:
        before, at = at, fleet.progress[at].following
    after = fleet.progress[i].following
    if before == NONE:
        replica.first_waiting = after
    else:
        fleet.progress[before].following = after
    if after == NONE:
        replica.last_waiting = before
    replica.waiting -= 1


@inner
def _take_out(fleet: Fleet, i: int, now_ms: float) -> None:
    """Take one row out of whatever it is in, and forget what it had."""
    request, flight = fleet.progress[i], fleet.flights[i]
    r = int(request.replica)
    if request.status == RUNNING:
        _leave_order(fleet, r, i)
    elif request.status == WAITING:
        _leave_queue(fleet, r, i)
    elif request.status == RECEIVING:
        end_transfer(fleet, i, now_ms)
        fleet.replicas[r].receiving -= 1
    elif request.status == UNSENT:  # it may be on its way
        for k in range(fleet.link[0].sent):
            sent = fleet.sent[(fleet.link[0].first_sent + k) % fleet.sent.shape[0]]
            if sent.row == i:
                sent.row = NONE
    if np.isnan(request.finish_ms):
        end_account(fleet, r, i)
    if request.seat != NONE:
        free_seat(fleet, r, i)
    request.replica = NONE
    request.status = UNSENT
    request.computed = 0
    request.chunk = 0
    request.own_slot = NONE
    request.cached_tokens = 0
    request.recomputed_tokens = 0
    request.moved_tokens = 0
    request.scheduled_ms = np.nan
    request.finish_ms = np.nan
    request.received_ms = np.nan
    flight.tokens_out = 0
    flight.first_token_ms = np.nan


@inner_inlined
def _admit_others(fleet: Fleet, traffic: Traffic, r: int, now_ms: float) -> None:
    """A request left the replica, with its seat and blocks: others may have waited for them."""
    if fleet.replicas[r].alive == 1 and fleet.replicas[r].waiting > 0:
        wake(fleet, traffic, r, now_ms, 0)


@inner
def give_up(fleet: Fleet, traffic: Traffic, i: int, now_ms: float) -> None:
    """The request loses its replica; ``i`` is the row of its prefill, or its only one."""
    last = int(fleet.questions[i].decode_row)
    answers = i if last == NONE else last
    mid_stream = not np.isnan(fleet.flights[answers].first_token_ms)
    prefill = int(fleet.progress[i].replica)
    _take_out(fleet, i, now_ms)
    if last != NONE and fleet.progress[last].replica != NONE:
        decode = int(fleet.progress[last].replica)
        _take_out(fleet, last, now_ms)
        _admit_others(fleet, traffic, prefill, now_ms)
        _admit_others(fleet, traffic, decode, now_ms)
    if mid_stream or fleet.progress[i].tries >= traffic.rules[0].most_tries:
        fleet.progress[i].status = FAILED
        fleet.progress[i].cause = DIED_MID_STREAM if mid_stream else TRIES_USED
        end_of_request(traffic, now_ms)
    else:
        ask_again(traffic, i)


@inner
def _die(fleet: Fleet, traffic: Traffic, r: int, now_ms: float) -> None:
    replica = fleet.replicas[r]
    done = iterations_done(fleet, r, now_ms)
    if done > 0:  # tokens of the stretch that came before
        replica.length = done
        replica.end_ms = replica.start_ms + stretch_ms(replica.base_ms, replica.growth_ms, done)
        finish_stretch(fleet, r)
    replica.alive = 0
    replica.length = 0
    replica.end_ms = np.inf
    for i in range(traffic.rules[0].requests):
        decode = int(fleet.questions[i].decode_row)
        there = fleet.progress[i].replica == r and (
            fleet.progress[i].status == RUNNING
            or fleet.progress[i].status == WAITING
            or (
                fleet.progress[i].status == HANDED_OVER
                and np.isnan(fleet.progress[decode].received_ms)
            )
        )
        if decode != NONE and fleet.progress[decode].replica == r:
            there = there or (
                fleet.progress[decode].status == RUNNING
                or fleet.progress[decode].status == WAITING
                or fleet.progress[decode].status == RECEIVING
            )
        if there:
            give_up(fleet, traffic, i, now_ms)
    clear_cache(fleet, r)
    forget_replica(fleet.knowledge, r)


@inner
def _slow(fleet: Fleet, r: int, slowness: float, now_ms: float) -> None:
    """Its iterations take that many times the nominal time, from the next one on."""
    replica, engine = fleet.replicas[r], fleet.engines[r]
    if replica.length > 0:
        cut_stretch(fleet, r, now_ms, 0)
    factor = slowness / replica.slowness
    replica.slowness = slowness
    engine.per_iteration_ms *= factor
    engine.per_prefill_token_ms *= factor
    engine.per_decode_ms *= factor
    engine.per_kv_token_ms *= factor
    engine.per_attention_ms *= factor


def _change_membership(fleet: Fleet, traffic: Traffic) -> int:
    rules, now_ms = traffic.rules[0], fleet.knowledge.clock[0].now_ms
    rules.same_columns = 0
    if rules.lost != NONE:
        lost = rules.lost
        rules.lost = NONE
        give_up(fleet, traffic, lost, now_ms)
        return 0
    change = traffic.changes[rules.next_change]
    rules.next_change += 1
    r = int(change.replica)
    if change.kind == DIES and fleet.replicas[r].alive == 1:
        _die(fleet, traffic, r, now_ms)
    elif change.kind == SLOWS:
        _slow(fleet, r, change.factor, now_ms)
    elif change.kind == JOINS:
        fleet.replicas[r].alive = 1
    if rules.held > 0:
        look_at(traffic, r)
    return 0


@cache
def membership_change() -> Kernel:
    """What happens next to a replica, or to the request that lost its decode replica."""
    state, traffic = typeof(smallest_fleet()), typeof(idle_traffic(1, 1))
    return Kernel(_change_membership, types.int64(state, traffic))
