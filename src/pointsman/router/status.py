"""What the router says of itself: ``/health``, for people, ``/ready``, for load balancers, and
``/metrics``, for Prometheus; ``/ui`` is the live page."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from importlib.metadata import version

from pointsman.router.admission import Admission
from pointsman.router.answers import Answer, refusal, report
from pointsman.router.client import ClientConnection
from pointsman.router.engines import Engines
from pointsman.router.health import State
from pointsman.router.membership import Membership, Replica
from pointsman.router.messages import ClientRequest
from pointsman.router.prometheus.counters import RouterCounters
from pointsman.router.prometheus.page import ReplicaState, RouterState, page
from pointsman.router.prometheus.pair_counters import PairCounters
from pointsman.router.prometheus.text import CONTENT_TYPE
from pointsman.router.replica_options import PREFILL
from pointsman.router.ui.live_page import UI_PATHS, LivePage

HEALTH = "/health"
READY = "/ready"
METRICS = "/metrics"
OWN_PATHS = frozenset((HEALTH, READY, METRICS)) | UI_PATHS

NOT_OFFERED = refusal(404, "the live page is not offered here; see --ui", "not_found")


@dataclass(frozen=True, slots=True)
class OwnPages:
    """What the router answers by itself."""

    admission: Admission
    engines: Engines
    counters: RouterCounters
    pairs: PairCounters | None = None
    live: LivePage | None = None  # None: it is not offered

    def answer(self, request: ClientRequest) -> Answer | None:
        """The answer to a request of one of these pages; None for any other."""
        path = request.path
        if path == HEALTH:
            return health_of(self.admission)
        if path == READY:
            return readiness_of(self.admission.membership)
        if path == METRICS and request.method in (b"GET", b"HEAD"):
            return self._metrics()
        if path in UI_PATHS:
            return NOT_OFFERED if self.live is None else self.live.answer(request)
        return None

    async def serve(self, request: ClientRequest, client: ClientConnection) -> None:
        """Answer whoever may ask for these pages alone."""
        answer = self.answer(request)
        if answer is None:
            known = ", ".join(sorted(OWN_PATHS - UI_PATHS))
            answer = refusal(404, f"no such page; expected one of {known}", "not_found")
        client.answer(request, answer)

    def _metrics(self) -> Answer:
        dispatcher = self.admission.dispatcher
        log = dispatcher.log
        state = RouterState(
            version=version("pointsman"),
            policy=dispatcher.rules.policy.label,
            now_ms=dispatcher.clock_ms(),
            replicas=self._replicas(),
            held_requests=self.admission.held,
            lost_log_lines=0 if log is None else log.lost_lines,
        )
        text = page(self.counters, state)
        if self.pairs is not None:
            text += self.pairs.page()
        return Answer(200, text.encode(), kind=(b"content-type", CONTENT_TYPE))

    def _replicas(self) -> list[ReplicaState]:
        """All that there ever were. Of those that had the same address the last one goes by it, the
        others by their numbers too: a page with two samples of one name is refused as a whole."""
        ever = self.admission.membership.ever
        last = {replica.url: replica.number for replica in ever}
        states = map(self.engines.state_of, ever)
        return [
            state
            if last[state.url] == number
            else replace(state, url=f"{state.url} (replica {number})")
            for number, state in enumerate(states)
        ]


def health_of(admission: Admission) -> Answer:
    """That the router is alive, and how everything behind it is at this instant."""
    return report(
        {
            "status": "ok",
            "policy": admission.dispatcher.rules.policy.label,
            "held": admission.held,
            "held_bytes": admission.held_bytes,
            "refused": admission.refused,
            "replicas": [facts_of(replica) for replica in admission.membership.members],
        }
    )


def readiness_of(membership: Membership) -> Answer:
    """200 only if a replica is up."""
    ready = any(
        membership[number].health.state is State.UP
        and membership[number].options.role != PREFILL  # no answer comes from there alone
        for number in membership.ready
    )
    return report({"ready": ready}, status=200 if ready else 503)


def facts_of(replica: Replica) -> dict[str, object]:
    """One replica as JSON shows it."""
    failure = replica.health.last_failure
    ago_s = None if failure is None else asyncio.get_running_loop().time() - failure.at_s
    return {
        "id": replica.number,
        "url": replica.url,
        "state": replica.state,
        "weight": replica.options.weight,
        **({} if replica.options.role is None else {"role": replica.options.role}),
        "in_flight": replica.in_flight,
        "connects": replica.pool.connects,
        "last_failure": failure and {"error": failure.error, "ago_s": ago_s},
    }
