"""sglang's default: where most of the prompt is, until loads are too far apart."""

from __future__ import annotations

from pointsman.policies.fewest import fewest_requests, fewest_where, most_requests
from pointsman.policies.matches import fraction_of_prompt
from pointsman.policies.policy import (
    CACHED_TOKENS,
    REQUESTS,
    Parameters,
    Request,
    View,
    policy,
)

ABS_REQUESTS = 0
REL_FACTOR = 1
THRESHOLD_FRACTION = 2

IMBALANCED = 0
PREFIX_MATCH = 1
LEAST_LOAD = 2


@policy(
    rule=(
        "When the most requests in flight exceed the fewest by more than abs_requests and by more"
        " than rel_factor times: the fewest. Else where most of the prompt is, if that is more than"
        " threshold_fraction of it; else the fewest."
    ),
    source=(
        "sgl-project/sglang, sgl-model-gateway/src/policies/cache_aware.rs @053b63f; defaults of"
        " sglang-router 0.3.2; the same in vllm-project/router src/policies/cache_aware.rs"
    ),
    reasons=("imbalanced", "prefix_match", "least_load"),
    parameters={"abs_requests": 64.0, "rel_factor": 1.5, "threshold_fraction": 0.3},
    reads=("requests", "prefix"),
)
def sglang_cache_aware(request: Request, view: View, parameters: Parameters) -> tuple[int, int]:
    """Theirs matches characters in a radix tree of what was sent where; ours are the tokens that
    the view holds to be cached. Theirs takes whichever of the equal matches its tree names first;
    ours the one with the fewest requests. Theirs counts the load of replicas that are down.
    """
    idlest = fewest_requests(view)
    most, fewest = most_requests(view), view[REQUESTS, idlest]
    if most - fewest > parameters[ABS_REQUESTS] and most > parameters[REL_FACTOR] * fewest:
        return idlest, IMBALANCED
    longest = request.longest_hit_tokens
    if fraction_of_prompt(request, longest) > parameters[THRESHOLD_FRACTION]:
        return fewest_where(view, CACHED_TOKENS, longest), PREFIX_MATCH
    return idlest, LEAST_LOAD
