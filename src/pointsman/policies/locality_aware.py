"""Where the session or the prefix is, as long as that costs little waiting."""

from __future__ import annotations

from pointsman.policies.policy import CACHED_TOKENS, WORK_MS, Parameters, Request, View, policy
from pointsman.policies.waits import longest_prefix_within, shortest_wait, wait_ms

SLACK_MS = 0

STICKY_SESSION = 0
PREFIX_LOCALITY = 1
QUEUE_FALLBACK = 2


@policy(
    rule=(
        "Among the replicas whose wait exceeds the shortest by at most slack_ms: the session's last"
        " one, else the one that holds most of the prompt; else the shortest wait."
    ),
    source=(
        "the lesson on serving replica routing, where a prefix is held whole or not at all; of"
        " prefixes in blocks the longest is taken"
    ),
    reasons=("sticky_session", "prefix_locality", "queue_fallback"),
    parameters={"slack_ms": 5.0},
    reads=("queue", "prefix", "session"),
)
def locality_aware(request: Request, view: View, parameters: Parameters) -> tuple[int, int]:
    """Take the session's home, then the longest prefix, within the slack; else the queue."""
    shortest = shortest_wait(request, view)
    limit_ms = wait_ms(request, view, shortest) + parameters[SLACK_MS]
    home = request.home
    if home >= 0 and wait_ms(request, view, home) <= limit_ms:
        return home, STICKY_SESSION
    longest = request.longest_hit_tokens
    if longest == 0.0:
        return shortest, QUEUE_FALLBACK
    if view[CACHED_TOKENS, shortest] == longest:  # nobody holds more, or waits less
        return shortest, PREFIX_LOCALITY
    holder = longest_prefix_within(request, view, limit_ms)
    if holder >= 0:
        return holder, PREFIX_LOCALITY
    return shortest, QUEUE_FALLBACK


@policy(
    rule=(
        "As locality_aware, with a slack of its own for every replica: the prefill time that what"
        " it holds saves against the replica with the shortest wait."
    ),
    source="ours; the slack of the lesson's rule in the milliseconds that a hit is worth",
    reasons=("sticky_session", "prefix_locality", "queue_fallback"),
    reads=("queue", "prefix", "session", "work"),
)
def locality_auto(request: Request, view: View, parameters: Parameters) -> tuple[int, int]:
    """Take the session's home, then whoever gains most, if it saves what it waits longer."""
    shortest = shortest_wait(request, view)
    paid_ms = wait_ms(request, view, shortest) + view[WORK_MS, shortest]
    home = request.home
    if home >= 0 and wait_ms(request, view, home) + view[WORK_MS, home] <= paid_ms:
        return home, STICKY_SESSION
    best = shortest
    for i in range(view.shape[1]):
        this_ms = wait_ms(request, view, i) + view[WORK_MS, i]
        if view[CACHED_TOKENS, i] > view[CACHED_TOKENS, shortest] and this_ms <= paid_ms:
            best = i
            paid_ms = this_ms
    if view[CACHED_TOKENS, best] > 0.0:
        return best, PREFIX_LOCALITY
    return best, QUEUE_FALLBACK
