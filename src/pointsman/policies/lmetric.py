"""Uncached tokens times load."""

from __future__ import annotations

from pointsman.policies.matches import uncached_tokens
from pointsman.policies.policy import (
    CACHED_TOKENS,
    REQUESTS,
    Parameters,
    Request,
    View,
    policy,
)

PREFIX_AND_LOAD = 0
LOAD = 1


@policy(
    rule=(
        "The least of (uncached tokens of the prompt) x (requests in flight + 1); among equals the"
        " fewest requests, then the fewest uncached tokens, then the lowest index."
    ),
    source=(
        "arXiv 2603.15202; sgl-project/sglang, sgl-model-gateway/src/policies/lmetric.rs @acaa759,"
        " which has no parameters either"
    ),
    reasons=("prefix_and_load", "load"),
    reads=("requests", "prefix"),
)
def lmetric(request: Request, view: View, parameters: Parameters) -> tuple[int, int]:
    """Theirs counts characters in a radix tree; ours are cached tokens. Where the prompt's length
    is unknown every product is 0, as theirs are without a text: the fewest requests decide.
    """
    best = 0
    best_uncached = uncached_tokens(request, view, 0)
    best_score = best_uncached * (view[REQUESTS, 0] + 1.0)
    for i in range(1, view.shape[1]):
        uncached = uncached_tokens(request, view, i)
        score = uncached * (view[REQUESTS, i] + 1.0)
        if score > best_score:
            continue
        fewer = view[REQUESTS, i] - view[REQUESTS, best]
        if score < best_score or fewer < 0.0 or (fewer == 0.0 and uncached < best_uncached):
            best, best_uncached, best_score = i, uncached, score
    return best, PREFIX_AND_LOAD if view[CACHED_TOKENS, best] > 0.0 else LOAD
