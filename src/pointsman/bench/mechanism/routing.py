"""Which request goes to which rank: our policies over the lesson's fixed costs.

    request           0  1  2  3  4  5  6  7
    cost, units       1  8  2  7  1  6  2  5        32 in all

All of them are there from the start, and a unit is taken to be a millisecond, so that the wait
that ``queue_aware`` compares is the units already sent to a rank: the lesson's least loaded.
"""

from __future__ import annotations

import numpy as np

from pointsman.policies.catalogue import POLICIES
from pointsman.sim.fifo import FifoFleet, simulate
from pointsman.workload.workload import workload_of_columns

# The lesson on serving replica routing, step 5; its benchmark has the same costs.
REQUEST_COSTS = (1, 8, 2, 7, 1, 6, 2, 5)

# The lesson's names for what is compared, and the policy that each one is.
STRATEGIES = {"round_robin": "round_robin", "least_loaded": "queue_aware"}

Queues = tuple[tuple[int, ...], ...]  # the costs that each rank serves, one after the other


def queues_of(strategy: str, ranks: int) -> Queues:
    """The costs of the requests that a strategy sends to each of so many ranks, in order."""
    routed = simulate(
        workload_of_columns(
            np.zeros(len(REQUEST_COSTS)), service_ms=np.array(REQUEST_COSTS, dtype=np.float64)
        ),
        POLICIES[STRATEGIES[strategy]],
        FifoFleet(replicas=ranks),
    )
    return tuple(
        tuple(cost for cost, to in zip(REQUEST_COSTS, routed.replica, strict=True) if to == rank)
        for rank in range(ranks)
    )
