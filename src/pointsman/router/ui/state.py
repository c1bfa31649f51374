"""What ``/ui/state`` says: the router at this instant and over the last minute.

Read from what is kept anyway; of requests only what was kept since somebody looks. What is not
known is null.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import msgspec

from pointsman.dispatch.pair_dispatcher import PairDispatcher
from pointsman.dispatch.record import Pair
from pointsman.router.admission import Admission
from pointsman.router.engines import Engines
from pointsman.router.membership import Membership, Replica
from pointsman.router.ui.decisions import Decision, decision_of
from pointsman.router.ui.first_tokens import TtftFigures
from pointsman.router.ui.watch import NOTHING, Lookout, Sums, Tally

GOOD = "good"  # all replicas are ready
REDUCED = "reduced"
DOWN = "down"  # nobody could answer a request


class Failure(msgspec.Struct, frozen=True):
    """What went wrong the last time."""

    error: str
    ago_s: float


class ReplicaRow(msgspec.Struct, frozen=True):
    """One replica. Gauges are as its engine told them last; ``held_requests`` wait in the router
    for it, ``wait_ms`` is what the router expects for a request of the usual length."""

    id: int
    url: str
    role: str | None
    state: str
    is_ready: bool
    last_failure: Failure | None
    in_flight: int
    held_requests: int
    wait_ms: float
    waiting_requests: int | None
    running_requests: int | None
    kv_use_fraction: float | None
    gauges_age_s: float | None
    gauges_are_stale: bool
    requests: int
    share_fraction: float | None
    expected_cached_fraction: float | None
    reported_cached_fraction: float | None


class State(msgspec.Struct, frozen=True):
    """All that the page shows. Rates and fractions are of the last ``window_s``."""

    version: str
    policy: str
    reads: list[str]
    now_ms: float
    window_s: float
    standing: str
    ready: int
    requests_per_s: float | None
    expected_cached_fraction: float | None
    reported_cached_fraction: float | None
    held_requests: int
    refused_requests: int
    ttft: TtftFigures
    replicas: list[ReplicaRow]
    decisions: list[Decision]  # the newest first


@dataclass(frozen=True, slots=True)
class Sources:
    """Where it is read."""

    admission: Admission
    engines: Engines
    version: str

    @property
    def pairs(self) -> Sequence[Pair]:
        """What numbers of candidates stand for; none where they are replicas."""
        dispatcher = self.admission.dispatcher
        return dispatcher.pairs if isinstance(dispatcher, PairDispatcher) else ()


def state_of(sources: Sources, lookout: Lookout, now_ms: float) -> State:
    """The router as it stands, with what was seen of requests."""
    admission = sources.admission
    policy, membership = admission.dispatcher.rules.policy, admission.membership
    window_ms, tally = lookout.last_minute(now_ms)
    total = _total(tally)
    return State(
        version=sources.version,
        policy=policy.label,
        reads=sorted(policy.reads),
        now_ms=now_ms,
        window_s=window_ms / 1000.0,
        standing=standing_of(membership),
        ready=len(membership.ready),
        requests_per_s=_fraction(tally.choices, window_ms / 1000.0),
        expected_cached_fraction=_expected(total),
        reported_cached_fraction=_reported(total),
        held_requests=admission.held,
        refused_requests=admission.refused,
        ttft=lookout.first_tokens.figures(lookout.since_ms, now_ms),
        replicas=[_row(sources, each, tally, total) for each in membership.members],
        decisions=[
            decision_of(seen, sources.pairs) for seen in reversed(lookout.decisions.values())
        ],
    )


def standing_of(membership: Membership) -> str:
    """Of the fleet as a whole."""
    members, ready = membership.members, set(membership.ready)
    roles = {each.options.role for each in members}
    served = {each.options.role for each in members if each.number in ready}
    if not members or roles - served or not served:
        return DOWN
    return GOOD if len(ready) == len(members) else REDUCED


def _row(sources: Sources, replica: Replica, tally: Tally, total: Sums) -> ReplicaRow:
    admission, number, now_ms = sources.admission, replica.number, tally.at_ms
    ledger, failure = admission.dispatcher.ledger, replica.health.last_failure
    own = tally.of_replicas.get(number, NOTHING)
    usual_tokens = total.prompt_tokens // max(1, tally.choices)
    wait_ms, _ = ledger.expected_wait(number, usual_tokens, now_ms, 0.0)
    reading = sources.engines.state_of(replica).reading
    engine = None if reading is None else reading.engine
    return ReplicaRow(
        id=number,
        url=replica.url,
        role=replica.options.role,
        state=replica.state,
        is_ready=number in admission.membership.ready,
        last_failure=None if failure is None else Failure(failure.error, _ago_s(failure.at_s)),
        in_flight=replica.in_flight,
        held_requests=ledger.held_for(number),
        wait_ms=wait_ms,
        waiting_requests=None if engine is None else engine.waiting_requests,
        running_requests=None if engine is None else engine.running_requests,
        kv_use_fraction=None if engine is None else engine.kv_use,
        gauges_age_s=None if reading is None else reading.age_ms(now_ms) / 1000.0,
        gauges_are_stale=reading is not None and reading.is_stale(now_ms),
        requests=own.requests,
        share_fraction=_fraction(own.requests, tally.choices),
        expected_cached_fraction=_expected(own),
        reported_cached_fraction=_reported(own),
    )


def _total(tally: Tally) -> Sums:
    return reduce(Sums.plus, tally.of_replicas.values(), NOTHING)


def _expected(sums: Sums) -> float | None:
    return _fraction(sums.expected_cached_tokens, sums.prompt_tokens)


def _reported(sums: Sums) -> float | None:
    return _fraction(sums.reported_cached_tokens, sums.reported_prompt_tokens)


def _fraction(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _ago_s(at_s: float) -> float:
    return asyncio.get_running_loop().time() - at_s
