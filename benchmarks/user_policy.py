"""A policy from a user's file against the built-in one with the same source.

python benchmarks/user_policy.py
"""

from __future__ import annotations

import inspect
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.engine_speed import best_of, columns_for, workload_of
from pointsman import POLICIES, FifoFleet, Policy, policy_named, simulate
from pointsman.policies import queue_aware

REQUESTS = 200_000


def seconds(rule: Policy, replicas: int) -> float:
    workload, fleet = workload_of(columns_for(replicas, REQUESTS)), FifoFleet(replicas)
    simulate(workload, rule, fleet)
    return best_of(9, lambda: simulate(workload, rule, fleet))[0]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mine.py"
        file.write_text(inspect.getsource(queue_aware))
        mine = policy_named(f"{file}:queue_aware")
        for replicas in (4, 64):
            ratio = seconds(mine, replicas) / seconds(POLICIES["queue_aware"], replicas)
            print(json.dumps({"replicas": replicas, "ratio": round(ratio, 3)}))


if __name__ == "__main__":
    main()
