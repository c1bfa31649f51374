"""Locality-aware routing where every replica holds the prefix, or one, or there is none.

python benchmarks/shared_prefix.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.engine_speed import best_of, columns_for
from pointsman import POLICIES, FifoFleet, simulate, workload_of_columns

REQUESTS = 200_000


def nanoseconds(replicas: int, blocks: np.ndarray | None) -> float:
    columns = columns_for(replicas, REQUESTS)
    chains = {}
    if blocks is not None:
        chains = {"chain_start": np.arange(REQUESTS + 1), "chain_blocks": blocks}
    workload = workload_of_columns(columns.arrival_ms, service_ms=columns.service_ms, **chains)
    rule, fleet = POLICIES["locality_aware"], FifoFleet(replicas)
    simulate(workload, rule, fleet)
    return best_of(7, lambda: simulate(workload, rule, fleet))[0] / REQUESTS * 1e9


def main() -> None:
    for replicas in (64, 256):
        none = nanoseconds(replicas, None)
        alone = nanoseconds(replicas, np.arange(REQUESTS, dtype=np.int32) // 2)
        shared = nanoseconds(replicas, np.zeros(REQUESTS, dtype=np.int32))
        row = {
            "replicas": replicas,
            "no_prefix_ns": round(none),
            "held_by_one_ns": round(alone),
            "held_by_all_ns": round(shared),
            "all_over_one": round(shared / alone, 2),
        }
        print(json.dumps(row))


if __name__ == "__main__":
    main()
