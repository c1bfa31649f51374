"""Rules that look at one or two replicas drawn at random."""

from __future__ import annotations

from pointsman.policies.policy import REQUESTS, Parameters, Request, View, policy


@policy(
    rule="A replica drawn at random, all alike.",
    source="the usual baseline; LiteLLM's simple-shuffle without weights",
    reasons=("random",),
    reads=("random",),
)
def random(request: Request, view: View, parameters: Parameters) -> tuple[int, int]:
    """Take any candidate."""
    return int(request.random * view.shape[1]), 0


@policy(
    rule="Of two different replicas drawn at random, the one with fewer requests in flight.",
    source=(
        "M. Mitzenmacher, The Power of Two Choices in Randomized Load Balancing, 2001;"
        " sglang `power_of_two`"
    ),
    reasons=("fewer_of_two",),
    reads=("requests", "random"),
)
def power_of_two(request: Request, view: View, parameters: Parameters) -> tuple[int, int]:
    """Draw two candidates, take the one with fewer requests; the first drawn when equal."""
    candidates = view.shape[1]
    scaled = request.random * candidates
    first = int(scaled)
    if candidates == 1:
        return first, 0
    # What is left of the draw is uniform again, and picks among the others.
    second = int((scaled - first) * (candidates - 1))
    if second >= first:
        second += 1
    if view[REQUESTS, second] < view[REQUESTS, first]:
        return second, 0
    return first, 0
