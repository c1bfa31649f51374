"""Preble's E2: exploit a cache that holds most of the prompt, else explore."""

from __future__ import annotations

import numpy as np

from pointsman.policies.matches import fraction_of_prompt
from pointsman.policies.policy import WORK_MS, Parameters, Request, View, policy
from pointsman.policies.waits import longest_prefix_within, wait_ms

EXPLOIT = 0
EXPLORE = 1


@policy(
    rule=(
        "When more of the prompt is cached somewhere than is left to compute: where most of it is,"
        " among equals the shortest wait. Else the least wait + own prefill, the lowest index"
        " among equals."
    ),
    source="V. Srivatsa et al., Preble, arXiv 2407.00023: E2",
    reasons=("exploit", "explore"),
    reads=("queue", "prefix", "work"),
)
def preble(request: Request, view: View, parameters: Parameters) -> tuple[int, int]:
    """Their load is the work sent there in the last minutes, ours the expected wait. Their cost of
    evicting, and their rebalancing and copying of hot prefixes afterwards, are left out.
    """
    if fraction_of_prompt(request, request.longest_hit_tokens) > 0.5:
        return longest_prefix_within(request, view, np.inf), EXPLOIT
    best, least_ms = 0, np.inf
    for i in range(view.shape[1]):
        cost_ms = wait_ms(request, view, i) + view[WORK_MS, i]
        if cost_ms < least_ms:
            best, least_ms = i, cost_ms
    return best, EXPLORE
