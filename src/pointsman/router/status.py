"""What the router says of itself: ``/health``, for people, and ``/ready``, for load balancers."""

from __future__ import annotations

import asyncio

from pointsman.router.admission import Admission
from pointsman.router.answers import Answer, report
from pointsman.router.health import State
from pointsman.router.membership import Membership, Replica

HEALTH = "/health"
READY = "/ready"


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
    ready = any(membership[number].health.state is State.UP for number in membership.ready)
    return report({"ready": ready}, status=200 if ready else 503)


def facts_of(replica: Replica) -> dict[str, object]:
    """One replica as JSON shows it."""
    failure = replica.health.last_failure
    ago_s = None if failure is None else asyncio.get_running_loop().time() - failure.at_s
    return {
        "id": replica.number,
        "url": replica.url,
        "state": replica.state,
        "in_flight": replica.in_flight,
        "connects": replica.pool.connects,
        "last_failure": failure and {"error": failure.error, "ago_s": ago_s},
    }
