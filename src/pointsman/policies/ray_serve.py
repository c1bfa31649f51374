"""Ray Serve's prefix router: the best match, else the emptiest cache, else two choices."""

from __future__ import annotations

import numpy as np

from pointsman.policies.fewest import fewest_requests, fewest_where, most_requests
from pointsman.policies.matches import fraction_of_prompt
from pointsman.policies.policy import (
    CACHED_TOKENS,
    KV_USE,
    REQUESTS,
    Parameters,
    Request,
    View,
    policy,
)
from pointsman.policies.sampled import two_drawn

IMBALANCED_REQUESTS = 0
MATCH_FRACTION = 1

PREFIX_MATCH = 0
LEAST_CACHE_USE = 1
FEWER_OF_TWO = 2


@policy(
    rule=(
        "When the most requests in flight exceed the fewest by more than imbalanced_requests: the"
        " fewer of two drawn. Else where most of the prompt is, if that is at least match_fraction"
        " of it, else where the least KV is in use; among equals the fewest requests."
    ),
    source=(
        "ray-project/ray, python/ray/llm/_internal/serve/routing_policies/prefix_aware/"
        "prefix_aware_router.py @06c16f2, PrefixCacheAffinityRouter"
    ),
    reasons=("prefix_match", "least_cache_use", "fewer_of_two"),
    parameters={"imbalanced_requests": 1e9, "match_fraction": 0.1},
    reads=("requests", "prefix", "engine", "random"),
)
def ray_prefix_affinity(request: Request, view: View, parameters: Parameters) -> tuple[int, int]:
    """Their threshold is infinite by default, for which 1e9 stands; at first it was 10. Their
    emptiest cache has the fewest characters in a tree of all that was ever sent there, which is
    never emptied by default; ours is the engine's KV use.
    """
    fewest = view[REQUESTS, fewest_requests(view)]
    if most_requests(view) - fewest > parameters[IMBALANCED_REQUESTS]:
        first, second = two_drawn(request.random, view.shape[1])
        fewer = second if view[REQUESTS, second] < view[REQUESTS, first] else first
        return fewer, FEWER_OF_TWO
    longest = request.longest_hit_tokens
    if fraction_of_prompt(request, longest) >= parameters[MATCH_FRACTION] and longest > 0.0:
        return fewest_where(view, CACHED_TOKENS, longest), PREFIX_MATCH
    least = np.inf
    for i in range(view.shape[1]):
        least = min(least, view[KV_USE, i])
    return fewest_where(view, KV_USE, least), LEAST_CACHE_USE
