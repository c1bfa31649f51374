"""The lessons' dict functions against the plain rule on the same dicts.

python benchmarks/dict_functions.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.engine_speed import Columns, best_of, columns_for, records_of
from pointsman import simulate_replica_routing
from tests.oracle import route_records

REQUESTS = 20_000


def measure(strategy: str, replicas: int) -> dict:
    columns = columns_for(replicas, REQUESTS)
    requests = records_of(Columns(*(column.tolist() for column in columns)))
    ours_s, ours = best_of(3, lambda: simulate_replica_routing(requests, replicas, strategy))
    plain_s, plain = best_of(3, lambda: route_records(requests, replicas, strategy))
    assert ours == plain
    return {
        "strategy": strategy,
        "replicas": replicas,
        "us_per_request": round(ours_s / REQUESTS * 1e6, 2),
        "plain_us_per_request": round(plain_s / REQUESTS * 1e6, 2),
        "ratio": round(plain_s / ours_s, 2),
    }


def main() -> None:
    for strategy in ("round_robin", "queue_aware", "locality_aware"):
        for replicas in (4, 64):
            print(json.dumps(measure(strategy, replicas)))


if __name__ == "__main__":
    main()
