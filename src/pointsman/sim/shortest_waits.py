"""The shortest wait there was at each arrival, from the columns of a single-server run."""

from __future__ import annotations

import numpy as np

from pointsman.core.compiled import helper
from pointsman.workload.workload import Floats, Ints


def shortest_waits_ms(
    arrival_ms: Floats, replica: Ints, finish_ms: Floats, replicas: int
) -> Floats:
    """For each request, in order of arrival, the least wait that any replica had for it."""
    shortest = np.empty_like(arrival_ms)
    _fill(arrival_ms, replica, finish_ms, np.zeros(replicas), shortest)
    return shortest


@helper
def _fill(
    arrival_ms: Floats, replica: Ints, finish_ms: Floats, free_at_ms: Floats, shortest: Floats
) -> None:
    for i in range(arrival_ms.shape[0]):
        least = free_at_ms[0]
        for k in range(1, free_at_ms.shape[0]):
            least = min(least, free_at_ms[k])
        shortest[i] = max(0.0, least - arrival_ms[i])
        free_at_ms[replica[i]] = finish_ms[i]
