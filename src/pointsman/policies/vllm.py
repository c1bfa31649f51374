"""vllm-router's and production-stack's rules over the engines' KV events."""

from __future__ import annotations

import numpy as np

from pointsman.policies.fewest import fewest_requests, total_requests
from pointsman.policies.matches import fraction_of_prompt
from pointsman.policies.policy import (
    CACHED_TOKENS,
    REQUESTS,
    Parameters,
    Request,
    View,
    policy,
)

MOST_CACHED = 0
LEAST_LOAD = 1

BETA = 0

PREFIX_AND_LOAD = 0
LOAD = 1


@policy(
    rule=(
        "Where most of the prompt is cached, whatever the load, the last among equals; nothing"
        " anywhere: the fewest requests, the lowest index among equals."
    ),
    source="vllm-project/router, src/policies/kv_aware.rs @71af994",
    reasons=("most_cached", "least_load"),
    reads=("requests", "prefix"),
)
def vllm_kv_aware(request: Request, view: View, parameters: Parameters) -> tuple[int, int]:
    """Theirs expects the blocks of a request that it sent for 2 s, ours until the engine says
    otherwise."""
    if request.longest_hit_tokens <= 0.0:
        return fewest_requests(view), LEAST_LOAD
    best = 0
    for i in range(1, view.shape[1]):
        if view[CACHED_TOKENS, i] >= view[CACHED_TOKENS, best]:
            best = i
    return best, MOST_CACHED


@policy(
    rule=(
        "The highest (cached fraction of the prompt) - beta x (requests in flight - mean) / max(1,"
        " mean), the lowest index among equals; nothing cached anywhere: the fewest requests."
    ),
    source="vllm-project/production-stack#1035, `loadaware`",
    reasons=("prefix_and_load", "load"),
    parameters={"beta": 1.0},
    reads=("requests", "prefix"),
)
def production_stack_loadaware(
    request: Request, view: View, parameters: Parameters
) -> tuple[int, int]:
    """With nothing cached anywhere theirs hashes the session, or takes the lowest request rate; the
    view has no rates, and ours takes the fewest requests."""
    if request.longest_hit_tokens <= 0.0:
        return fewest_requests(view), LOAD
    mean = total_requests(view) / view.shape[1]
    best, highest = 0, -np.inf
    for i in range(view.shape[1]):
        load = (view[REQUESTS, i] - mean) / max(1.0, mean)
        cached = fraction_of_prompt(request, view[CACHED_TOKENS, i])
        score = cached - parameters[BETA] * load
        if score > highest:
            best, highest = i, score
    return best, PREFIX_AND_LOAD if view[CACHED_TOKENS, best] > 0.0 else LOAD
