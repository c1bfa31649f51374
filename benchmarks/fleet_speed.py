"""The batching fleet: simulated requests a second, compile time apart.

    python benchmarks/fleet_speed.py

1. 10,000 requests of 1,000 in and 200 out, Poisson at 20 requests/s, on 4 replicas, at half and at
   twice what they can serve, and with a cache that is too small.
2. The public Mooncake conversation trace beside the checkout, else the example that follows it, 4
   replicas with 2,000 blocks of 512 tokens, every policy; with the peak memory of the process.
"""

from __future__ import annotations

import json
import resource
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.command_time import EXAMPLE, PUBLIC
from benchmarks.engine_speed import best_of
from pointsman import POLICIES, read_workload, workload_of_columns
from pointsman.costs.iteration import IterationCosts
from pointsman.sim.batching import BatchingFleet, Engine, simulate_fleet

# A round figure for an 8 B model on one data-centre GPU.
COSTS = IterationCosts(6.0, 0.05, 0.05, 1e-5, 5e-7)
REQUESTS = 10_000


def synthetic(rate_rps: float):
    rng = np.random.default_rng(0)
    return workload_of_columns(
        np.cumsum(rng.exponential(1000.0 / rate_rps, REQUESTS)),
        prompt_tokens=np.full(REQUESTS, 1000),
        output_tokens=np.full(REQUESTS, 200),
    )


def rate(workload, policy: str, fleet: BatchingFleet) -> tuple[int, object]:
    rule = POLICIES[policy]
    simulate_fleet(workload, rule, fleet)  # compiled apart
    seconds, run = best_of(3, lambda: simulate_fleet(workload, rule, fleet))
    return round(len(workload) / seconds), run


def main() -> None:
    roomy = Engine(COSTS, kv_blocks=40_000, max_num_batched_tokens=2048)
    cases = {
        "20 requests/s": (20.0, roomy),
        "twice the capacity": (160.0, roomy),
        "KV pressure": (20.0, replace(roomy, kv_blocks=700)),
    }
    for name, (rate_rps, engine) in cases.items():
        found, run = rate(synthetic(rate_rps), "round_robin", BatchingFleet.of(engine, 4))
        events = int(run.replicas["events"].sum()) / REQUESTS
        row = {"case": name, "requests_per_s": found, "events_per_request": round(events, 1)}
        print(json.dumps({**row, "preemptions": int(run.preemptions.sum())}))
    workload = read_workload(PUBLIC if PUBLIC.is_file() else EXAMPLE)
    engine = Engine(COSTS, kv_blocks=2000, block_size=512, max_num_seqs=128)
    for policy in POLICIES:
        found, _ = rate(workload, policy, BatchingFleet.of(engine, 4))
        print(
            json.dumps({"trace": workload.source.name, "policy": policy, "requests_per_s": found})
        )
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    print(json.dumps({"peak_mb": round(peak_mb)}))


if __name__ == "__main__":
    main()
