"""Answers of a fleet, a row a request, for tests of their figures."""

from __future__ import annotations

import numpy as np

from pointsman.metrics.latency import FAILED, FINISHED, REJECTED, Answers

NAN = float("nan")


def answers_of(*rows: tuple, **columns) -> Answers:
    """Of rows (replica, status, arrival, scheduled, first token, finish, prompt, output, cached,
    preemptions)."""
    types = [int, np.int8, *[float] * 4, *[int] * 4]
    values = list(zip(*rows, strict=True)) or [()] * len(types)
    return Answers(*map(np.array, values, types), **columns)


# Replica 0 serves A (5 tokens) and B (1 token), replica 1 serves C (11 tokens) and fails D;
# E is refused before it reaches a replica. Times in ms.
FIVE = answers_of(
    (0, FINISHED, 100.0, 110.0, 150.0, 190.0, 100, 5, 0, 0),  # TTFT 50, TPOT 10, E2E 90
    (0, FINISHED, 120.0, 150.0, 200.0, 200.0, 60, 1, 48, 0),  # TTFT 80, no TPOT, E2E 80
    (1, FINISHED, 130.0, 130.0, 330.0, 630.0, 40, 11, 32, 2),  # TTFT 200, TPOT 30, E2E 500
    (1, FAILED, 140.0, 145.0, 160.0, 1100.0, 50, 3, 0, 1),
    (-1, REJECTED, 150.0, NAN, NAN, NAN, 70, 0, 0, 0),
)
