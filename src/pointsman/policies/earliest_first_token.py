"""Where the first token is expected soonest."""

from __future__ import annotations

from pointsman.policies.policy import ITERATION_MS, WORK_MS, Parameters, Request, View, policy
from pointsman.policies.waits import wait_ms


@policy(
    rule=(
        "The replica with the least expected wait plus prefill of what it has not cached plus an"
        " iteration of all that decode there; the lowest index among equals."
    ),
    source="ours; what a first token takes, in milliseconds",
    reasons=("earliest_first_token",),
    reads=("queue", "prefix", "work", "decode"),
)
def earliest_first_token(request: Request, view: View, parameters: Parameters) -> tuple[int, int]:
    """Take the least sum of wait, work and the iteration that brings the token."""
    best = 0
    best_ms = wait_ms(request, view, 0) + view[WORK_MS, 0] + view[ITERATION_MS, 0]
    for i in range(1, view.shape[1]):
        this_ms = wait_ms(request, view, i) + view[WORK_MS, i] + view[ITERATION_MS, i]
        if this_ms < best_ms:
            best = i
            best_ms = this_ms
    return best, 0
