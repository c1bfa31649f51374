"""What several rules need of a view: the wait at a candidate, and the shortest wait.

The wait at candidate ``i`` is ``max(0, view[FREE_AT_MS, i] - request.now_ms)``, in milliseconds.
Ties go to the lowest index: the candidates that can start at once are all equal, whichever of
them fell idle first (the lesson on serving replica routing).
"""

from __future__ import annotations

import numpy as np

from pointsman.core.compiled import inlined
from pointsman.policies.policy import CACHED_TOKENS, FREE_AT_MS, Request, View


@inlined
def wait_ms(request: Request, view: View, candidate: int) -> float:
    """How long a request sent to the candidate now waits before it starts."""
    return float(max(0.0, view[FREE_AT_MS, candidate] - request.now_ms))


@inlined
def shortest_wait(request: Request, view: View) -> int:
    """The candidate with the shortest wait; the lowest index among equals."""
    best = 0
    best_ms = np.inf
    for i in range(view.shape[1]):
        this_ms = view[FREE_AT_MS, i] - request.now_ms
        if this_ms <= 0.0:
            return i
        if this_ms < best_ms:
            best = i
            best_ms = this_ms
    return best


@inlined
def longest_prefix_within(request: Request, view: View, limit_ms: float) -> int:
    """Of the candidates that hold some of the prompt and wait at most ``limit_ms``, the one that
    holds most of it; among equals the shortest wait, then the lowest index; -1 for none."""
    best = -1
    best_tokens = 0.0
    best_ms = np.inf
    for i in range(view.shape[1]):
        tokens = view[CACHED_TOKENS, i]
        if tokens > 0.0 and tokens >= best_tokens:
            this_ms = max(0.0, view[FREE_AT_MS, i] - request.now_ms)
            if this_ms <= limit_ms and (tokens > best_tokens or this_ms < best_ms):
                best = i
                best_tokens = tokens
                best_ms = this_ms
    return best
