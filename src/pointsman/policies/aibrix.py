"""aibrix's prefix cache: the best match whose load is not unusual."""

from __future__ import annotations

import numpy as np

from pointsman.core.compiled import inlined
from pointsman.policies.fewest import (
    fewest_requests,
    fewest_requests_at_random,
    most_requests,
    total_requests,
)
from pointsman.policies.matches import fraction_of_prompt
from pointsman.policies.policy import (
    CACHED_TOKENS,
    REQUESTS,
    Parameters,
    Request,
    View,
    policy,
)
from pointsman.policies.ties import one_in

GAP_REQUESTS = 0
IMBALANCE_FACTOR = 1
DEVIATIONS = 2

PREFIX_MATCH = 0
PREFIX_MATCH_IMBALANCED = 1
PREFIX_MATCH_SKIPPED = 2
LEAST_REQUESTS = 3


@inlined
def _deviation(view: View, mean: float) -> float:
    """The sample's standard deviation; 0 for one candidate."""
    count = view.shape[1]
    if count < 2:
        return 0.0
    squares = 0.0
    for i in range(count):
        squares += (view[REQUESTS, i] - mean) ** 2
    return float(np.sqrt(squares / (count - 1)))


@inlined
def _best_match(request: Request, view: View, most: float) -> int:
    """Of those that hold some of the prompt and have at most ``most`` requests the highest whole
    percentage, then the fewest requests, then any; -1 for none."""
    best, highest, fewest, equals, draw = -1, -1.0, np.inf, 0, request.random
    for i in range(view.shape[1]):
        requests = view[REQUESTS, i]
        if view[CACHED_TOKENS, i] <= 0.0 or requests > most:
            continue
        percent = np.floor(100.0 * fraction_of_prompt(request, view[CACHED_TOKENS, i]))
        if percent > highest or (percent == highest and requests < fewest):
            best, highest, fewest, equals = i, percent, requests, 1
        elif percent == highest and requests == fewest:
            equals += 1
            taken, draw = one_in(draw, equals)
            if taken:
                best = i
    return best


@policy(
    rule=(
        "Of those that hold some of the prompt and have at most mean + deviations x (standard"
        " deviation) requests in flight: the highest whole percentage of it, then the fewest"
        " requests, then any. When the most requests exceed imbalance_factor x (mean + 1) and are"
        " at least gap_requests more than the fewest, only where the fewest are. Nobody left: the"
        " fewest requests, among equals any."
    ),
    source=(
        "vllm-project/aibrix, pkg/plugins/gateway/algorithms/prefix_cache.go @01de8a5; the"
        " deviation is the sample's"
    ),
    reasons=("prefix_match", "prefix_match_imbalanced", "prefix_match_skipped", "least_requests"),
    parameters={"gap_requests": 8.0, "imbalance_factor": 2.0, "deviations": 1.0},
    reads=("requests", "prefix", "random"),
)
def aibrix_prefix_cache(request: Request, view: View, parameters: Parameters) -> tuple[int, int]:
    """Theirs matches blocks of characters that it remembers for a time; ours are the view's cached
    tokens. Up to @e3e10f9 an imbalance by more than 8 requests meant least requests at once; its
    README says 16 for the gap.
    """
    mean = total_requests(view) / view.shape[1]
    most, fewest = most_requests(view), view[REQUESTS, fewest_requests(view)]
    limit = mean + parameters[DEVIATIONS] * _deviation(view, mean)
    imbalanced = (
        most > parameters[IMBALANCE_FACTOR] * (mean + 1.0)
        and most - fewest >= parameters[GAP_REQUESTS]
    )
    if imbalanced:
        limit = min(limit, fewest)
    best = _best_match(request, view, limit)
    if best >= 0:
        return best, PREFIX_MATCH_IMBALANCED if imbalanced else PREFIX_MATCH
    held = request.longest_hit_tokens > 0.0
    reason = PREFIX_MATCH_SKIPPED if held else LEAST_REQUESTS
    return fewest_requests_at_random(request, view), reason
