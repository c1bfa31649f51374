"""The requests outside the engines: those to come, those to be routed again, those held.

    open loop     request i comes at questions[i].arrival_ms
    closed loop   as many as ``concurrency`` are in flight; when one ends, the next one comes
                  ``think_ms`` later, in the order of the workload

Held requests wait in the router until the replica that the policy chooses for them has at most
``hold_ms`` of work waiting (docs/simulator.md).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pointsman.core.compiled import inner, inner_inlined
from pointsman.dispatch.hold_order import turn_ms
from pointsman.sim.batching_state import NONE, Fleet
from pointsman.sim.stretch import cut_stretch

_turn_of = inner_inlined(turn_ms)

RULES = np.dtype(
    [
        ("requests", np.int64),
        ("next_arrival", np.int64),
        ("routed", np.int64),  # by all routers
        ("concurrency", np.int64),  # 0: open loop
        ("think_ms", np.float64),
        ("first_due", np.int64),
        ("due", np.int64),
        ("retrying", np.int64),
        ("first_retry", np.int64),
        ("most_tries", np.int32),
        ("next_change", np.int64),
        ("holds", np.int32),
        ("hold_ms", np.float64),
        ("most_held", np.int64),
        ("held", np.int64),
        ("order", np.int32),
        ("ageing", np.float64),  # ms of prefill that a ms of waiting outweighs
        ("ttft_ms", np.float64),  # the objective that deadlines are made of
        ("lost", np.int64),  # a request that came to a decode replica that is gone; else NONE
        ("starting", np.int64),  # replicas that start their next iteration at once
        ("looking_at", np.int64),  # held requests of this replica are being tried; else NONE
        ("look", np.int64),  # the number of this round of trying
        ("same_columns", np.int32),  # 1: all candidates can serve every request, and live
        # What the policy reads; all of it is looked up while the loop runs, for a loop compiled
        # for each set of signals would take longer than it saves.
        ("queue", np.int32),
        ("prefix", np.int32),
        ("engine", np.int32),
        ("gauges", np.int32),  # or it is one of several routers: what is not its own is seen there
        ("steps", np.int32),  # tokens that came back since the last event
        ("session", np.int32),
    ],
    align=True,
)

CHANGE = np.dtype(
    [("time_ms", np.float64), ("factor", np.float64), ("replica", np.int32), ("kind", np.int32)],
    align=True,
)

HELD = np.dtype(
    [
        ("row", np.int64),
        ("replica", np.int32),  # the one that it waits for
        ("work_ms", np.float64),  # its prefill there
        ("uncached_tokens", np.int64),
        ("prompt_tokens", np.int64),
        ("look", np.int64),  # the round in which it was last tried
        ("since_ms", np.float64),
    ],
    align=True,
)

AWAITED = np.dtype(  # of one replica: what the requests held for it bring, in sum
    [
        ("requests", np.int64),
        ("work_ms", np.float64),
        ("uncached_tokens", np.int64),
        ("prompt_tokens", np.int64),
    ],
    align=True,
)


class Traffic(NamedTuple):
    """What the event loop keeps of requests that are on no engine."""

    rules: NDArray[Any]  # one record
    due_ms: NDArray[np.float64]  # a ring: arrivals of a closed loop, released and not yet come
    retries: NDArray[np.int64]  # a ring
    changes: NDArray[Any]  # CHANGE, by time
    held: NDArray[Any]
    awaited: NDArray[Any]  # AWAITED, by replica
    starting: NDArray[np.int64]  # those replicas
    columns: NDArray[np.int32]  # (candidates, 3): as InFlight.replica_of, of all candidates
    waits: NDArray[np.float64]  # (requests, 4), NaN where the queues are not read:
    # expected where it went; the shortest; how much less the prompt takes where it went than
    # there; and until the iteration ends that was under way where it went
    cached: NDArray[np.float64]  # by replica: tokens of the prompt being routed
    routed_by: NDArray[np.int64]  # by router: requests that it has routed


def idle_traffic(requests: int, replicas: int) -> Traffic:
    """Open-loop traffic to replicas each of which is a candidate by itself; nothing is held."""
    rules = np.zeros(1, dtype=RULES)
    rules["requests"] = requests
    rules["most_tries"] = 1
    rules["looking_at"] = rules["lost"] = NONE
    columns = np.full((replicas, 3), NONE, dtype=np.int32)
    columns[:, 0] = columns[:, 2] = np.arange(replicas)
    return Traffic(
        rules=rules,
        due_ms=np.zeros(max(1, requests), dtype=np.float64),
        retries=np.zeros(max(1, requests), dtype=np.int64),
        changes=np.zeros(0, dtype=CHANGE),
        held=np.zeros(1, dtype=HELD),
        awaited=np.zeros(replicas, dtype=AWAITED),
        starting=np.zeros(2 * replicas, dtype=np.int64),
        columns=columns,
        waits=np.full((requests, 4), np.nan, dtype=np.float64),
        cached=np.zeros(replicas, dtype=np.float64),
        routed_by=np.zeros(1, dtype=np.int64),
    )


@inner_inlined
def next_arrival_ms(traffic: Traffic, arrival_ms: float) -> float:
    """When the next request comes, whose own time in the workload is ``arrival_ms``."""
    rules = traffic.rules[0]
    if rules.concurrency == 0:
        return arrival_ms
    return traffic.due_ms[rules.first_due] if rules.due > 0 else np.inf


@inner_inlined
def take_arrival(traffic: Traffic) -> int:
    """The row that comes now."""
    rules = traffic.rules[0]
    row = rules.next_arrival
    rules.next_arrival += 1
    if rules.concurrency > 0:
        rules.first_due = (rules.first_due + 1) % traffic.due_ms.shape[0]
        rules.due -= 1
    return row  # type: ignore[no-any-return]


@inner_inlined
def start(traffic: Traffic, r: int) -> None:
    """The replica starts its next iteration before anything else happens."""
    rules = traffic.rules[0]
    traffic.starting[rules.starting] = r
    rules.starting += 1


@inner_inlined
def wake(fleet: Fleet, traffic: Traffic, r: int, now_ms: float, further: int) -> None:
    """Somebody may be admitted there who could not be before, at the next start or, where arrivals
    are seen late, ``further`` iterations after it."""
    if fleet.replicas[r].length > 0:
        cut_stretch(fleet, r, now_ms, further)
    elif not _starts(traffic, r):
        start(traffic, r)


@inner_inlined
def _starts(traffic: Traffic, r: int) -> bool:
    found = False
    for k in range(traffic.rules[0].starting):
        found = found or traffic.starting[k] == r
    return found


@inner_inlined
def end_of_request(traffic: Traffic, now_ms: float) -> None:
    """A request ended, in whatever way: in a closed loop the next one is due."""
    rules = traffic.rules[0]
    if rules.concurrency > 0:
        ring = traffic.due_ms
        ring[(rules.first_due + rules.due) % ring.shape[0]] = now_ms + rules.think_ms
        rules.due += 1


@inner_inlined
def ask_again(traffic: Traffic, i: int) -> None:
    """The request is to be routed again, at once."""
    rules, ring = traffic.rules[0], traffic.retries
    ring[(rules.first_retry + rules.retrying) % ring.shape[0]] = i
    rules.retrying += 1


@inner_inlined
def take_retry(traffic: Traffic) -> int:
    """The next one to be routed again."""
    rules = traffic.rules[0]
    row = traffic.retries[rules.first_retry]
    rules.first_retry = (rules.first_retry + 1) % traffic.retries.shape[0]
    rules.retrying -= 1
    return row  # type: ignore[no-any-return]


@inner
def hold(traffic: Traffic, i: int, r: int, needs: tuple[float, float, int], now_ms: float) -> None:
    """Keep the request until replica r has little left to do; it may be held already.

    ``needs``: the time that its prefill takes there, its uncached tokens and those of its prompt.
    """
    rules = traffic.rules[0]
    place = 0
    while place < rules.held and traffic.held[place].row != i:
        place += 1
    held = traffic.held[place]
    if place == rules.held:
        rules.held += 1
        held.row = i
        held.since_ms = now_ms
    else:
        _await_no_more(traffic, place)
    held.replica = r
    held.work_ms, held.uncached_tokens, held.prompt_tokens = needs
    held.look = rules.look
    awaited = traffic.awaited[r]
    awaited.requests += 1
    awaited.work_ms += held.work_ms
    awaited.uncached_tokens += held.uncached_tokens
    awaited.prompt_tokens += held.prompt_tokens


@inner
def let_go(traffic: Traffic, i: int) -> None:
    """The request is held no more."""
    rules = traffic.rules[0]
    kept = 0
    for place in range(rules.held):
        if traffic.held[place].row == i:
            _await_no_more(traffic, place)
        else:
            if kept != place:
                traffic.held[kept] = traffic.held[place]
            kept += 1
    rules.held = kept


@inner_inlined
def _await_no_more(traffic: Traffic, place: int) -> None:
    held = traffic.held[place]
    awaited = traffic.awaited[held.replica]
    awaited.requests -= 1
    awaited.work_ms = awaited.work_ms - held.work_ms if awaited.requests > 0 else 0.0
    awaited.uncached_tokens -= held.uncached_tokens
    awaited.prompt_tokens -= held.prompt_tokens


@inner_inlined
def is_awaited(traffic: Traffic, r: int) -> bool:
    """Whether a held request waits for the replica."""
    return traffic.awaited[r].requests > 0  # type: ignore[no-any-return]


@inner_inlined
def _turn_ms(traffic: Traffic, place: int, now_ms: float) -> float:
    """The held request with the least goes first."""
    rules, held = traffic.rules[0], traffic.held[place]
    weights = (rules.ageing, rules.ttft_ms)
    return _turn_of(rules.order, held.work_ms, held.since_ms, weights, now_ms)


@inner
def next_held(traffic: Traffic, now_ms: float) -> int:
    """The first in order of those that wait for the replica looked at; NONE: all were tried."""
    rules = traffic.rules[0]
    found, least_ms = NONE, np.inf
    for place in range(rules.held):
        held = traffic.held[place]
        if held.replica == rules.looking_at and held.look != rules.look:
            turn_ms = _turn_ms(traffic, place, now_ms)
            if turn_ms < least_ms:
                least_ms = turn_ms
                found = held.row
    return found


@inner_inlined
def look_at(traffic: Traffic, r: int) -> None:
    """Try the requests that are held for the replica."""
    traffic.rules[0].looking_at = r
    traffic.rules[0].look += 1
