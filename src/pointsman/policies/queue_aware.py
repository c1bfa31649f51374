"""Where the wait is shortest."""

from __future__ import annotations

from pointsman.policies.policy import Parameters, Request, View, policy
from pointsman.policies.waits import shortest_wait


@policy(
    rule="The replica with the shortest expected wait; the lowest index among equals.",
    source="the lesson on serving replica routing; `least_loaded` in the distributed lesson",
    reasons=("shortest_queue",),
    reads=("queue",),
)
def queue_aware(request: Request, view: View, parameters: Parameters) -> tuple[int, int]:
    """Take the shortest wait."""
    return shortest_wait(request, view), 0
