"""Rules that look at one or two replicas drawn at random."""

from __future__ import annotations

from pointsman.core.compiled import inlined
from pointsman.policies.policy import (
    CONTEXT_TOKENS,
    REQUESTS,
    Parameters,
    Request,
    View,
    policy,
)


@inlined
def two_drawn(draw: float, candidates: int) -> tuple[int, int]:
    """Two different candidates, every ordered pair as likely; where there is one, twice that."""
    scaled = draw * candidates
    first = int(scaled)
    if candidates == 1:
        return first, first
    # What is left of the draw is uniform again, and picks among the others.
    second = int((scaled - first) * (candidates - 1))
    if second >= first:
        second += 1
    return first, second


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
    first, second = two_drawn(request.random, view.shape[1])
    if view[REQUESTS, second] < view[REQUESTS, first]:
        return second, 0
    return first, 0


@policy(
    rule="Of two different replicas drawn at random, the one with fewer tokens in flight.",
    source=(
        "sgl-project/sglang, sgl-model-gateway/src/policies/power_of_two.rs, where the engines tell"
        " their tokens"
    ),
    reasons=("fewer_tokens_of_two",),
    reads=("context", "random"),
)
def power_of_two_tokens(request: Request, view: View, parameters: Parameters) -> tuple[int, int]:
    """Theirs compares what the engines report, ours the prompts and answers that were sent there;
    the first drawn when equal."""
    first, second = two_drawn(request.random, view.shape[1])
    if view[CONTEXT_TOKENS, second] < view[CONTEXT_TOKENS, first]:
        return second, 0
    return first, 0
