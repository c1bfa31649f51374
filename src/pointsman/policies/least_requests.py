"""Where the fewest requests are."""

from __future__ import annotations

from pointsman.policies.policy import REQUESTS, Parameters, Request, View, policy


@policy(
    rule="The replica with the fewest requests in flight; among equals in turn.",
    source="Envoy and nginx `least_conn`; vLLM's router and llm-d count the same way",
    reasons=("fewest_requests",),
    reads=("requests",),
)
def least_requests(request: Request, view: View, parameters: Parameters) -> tuple[int, int]:
    """Take the fewest requests; equals are taken in turn, so that none is preferred."""
    candidates = view.shape[1]
    first = request.sequence % candidates
    best = first
    for step in range(candidates):
        i = first + step
        if i >= candidates:
            i -= candidates
        if view[REQUESTS, i] < view[REQUESTS, best]:
            best = i
    return best, 0
