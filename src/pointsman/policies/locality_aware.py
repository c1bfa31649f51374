"""Where the session or the prefix is, as long as that costs little waiting."""

from __future__ import annotations

from pointsman.policies.policy import CACHED_TOKENS, Parameters, Request, View, policy
from pointsman.policies.waits import shortest_wait, shortest_wait_with_prefix, wait_ms

SLACK_MS = 0

STICKY_SESSION = 0
PREFIX_LOCALITY = 1
QUEUE_FALLBACK = 2


@policy(
    rule=(
        "The session's last replica, else the least busy one that holds the prefix, if its wait"
        " exceeds the shortest by at most slack_ms; else the shortest wait."
    ),
    source="the lesson on serving replica routing",
    reasons=("sticky_session", "prefix_locality", "queue_fallback"),
    parameters={"slack_ms": 5.0},
    reads=("queue", "prefix", "session"),
)
def locality_aware(request: Request, view: View, parameters: Parameters) -> tuple[int, int]:
    """Take the session's home, then the prefix, within the slack; else the shortest wait."""
    shortest = shortest_wait(request, view)
    limit_ms = wait_ms(request, view, shortest) + parameters[SLACK_MS]
    home = request.home
    if home >= 0 and wait_ms(request, view, home) <= limit_ms:
        return home, STICKY_SESSION
    if view[CACHED_TOKENS, shortest] > 0.0:  # no other holder has a shorter wait
        return shortest, PREFIX_LOCALITY
    holder = shortest_wait_with_prefix(request, view)
    if holder >= 0 and wait_ms(request, view, holder) <= limit_ms:
        return holder, PREFIX_LOCALITY
    return shortest, QUEUE_FALLBACK
