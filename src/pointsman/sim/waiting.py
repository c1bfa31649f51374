"""The requests that wait on a replica, from ``first_waiting`` on: as they came, or by priority."""

from __future__ import annotations

from pointsman.core.compiled import inner, inner_inlined
from pointsman.sim.batching_state import NONE, WAITING, Fleet


@inner_inlined
def goes_later(fleet: Fleet, i: int, j: int) -> bool:
    """Whether request i comes after j where the engine goes by priority."""
    mine, other = fleet.questions[i], fleet.questions[j]
    if mine.priority != other.priority:
        return mine.priority > other.priority  # type: ignore[no-any-return]
    return mine.arrival_ms > other.arrival_ms or (mine.arrival_ms == other.arrival_ms and i > j)


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
def go_back(fleet: Fleet, r: int, i: int) -> None:
    """The preempted request waits in front of all; by priority, where it goes."""
    fleet.progress[i].status = WAITING
    if fleet.engines[r].by_priority == 1:
        _join_by_priority(fleet, r, i)
    else:
        _join_behind(fleet, r, i, NONE)


@inner_inlined
def leave_queue(fleet: Fleet, r: int, i: int) -> None:
    """The request, the first one that waits, waits no more."""
    fleet.replicas[r].first_waiting = fleet.progress[i].following
    fleet.replicas[r].waiting -= 1


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
    while after != NONE and goes_later(fleet, i, after):
        before, after = after, fleet.progress[after].following
    _join_behind(fleet, r, i, before)
