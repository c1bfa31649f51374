"""Where the fewest requests are, of all candidates or of some."""

from __future__ import annotations

import numpy as np

from pointsman.core.compiled import inlined
from pointsman.policies.policy import REQUESTS, Request, View
from pointsman.policies.ties import one_in


@inlined
def fewest_requests(view: View) -> int:
    """The candidate with the fewest requests; the lowest index among equals."""
    best = 0
    for i in range(1, view.shape[1]):
        if view[REQUESTS, i] < view[REQUESTS, best]:
            best = i
    return best


@inlined
def fewest_where(view: View, row: int, value: float) -> int:
    """Of the candidates where the row has that value the one with the fewest requests; the lowest
    index among equals; -1 for none."""
    best = -1
    for i in range(view.shape[1]):
        fits = view[row, i] == value
        if fits and (best < 0 or view[REQUESTS, i] < view[REQUESTS, best]):
            best = i
    return best


@inlined
def fewest_requests_at_random(request: Request, view: View) -> int:
    """The candidate with the fewest requests; any of the equals."""
    best, least, equals, draw = 0, np.inf, 0, request.random
    for i in range(view.shape[1]):
        if view[REQUESTS, i] < least:
            best, least, equals = i, view[REQUESTS, i], 1
        elif view[REQUESTS, i] == least:
            equals += 1
            taken, draw = one_in(draw, equals)
            if taken:
                best = i
    return best


@inlined
def total_requests(view: View) -> float:
    """Requests in flight on all candidates together."""
    total = 0.0
    for i in range(view.shape[1]):
        total += view[REQUESTS, i]
    return total


@inlined
def most_requests(view: View) -> float:
    """Requests in flight where most are."""
    most = view[REQUESTS, 0]
    for i in range(1, view.shape[1]):
        most = max(most, view[REQUESTS, i])
    return float(most)
