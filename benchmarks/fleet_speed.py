"""The batching fleet: simulated requests a second, compile time apart, and the memory it takes.

    python benchmarks/fleet_speed.py

1. 10,000 requests of 1,000 in and 200 out, Poisson at 20 requests/s, on 4 replicas; at twice what
   they can serve; with a cache that is too small; prefill and decode apart; and 40,000 of them.
2. The public Mooncake conversation trace beside the checkout, else the example that follows it, 4
   replicas with 2,000 blocks of 512 tokens, every policy.
3. The peak memory of a process that runs that trace once, everything being compiled.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.command_time import EXAMPLE, PUBLIC
from benchmarks.engine_speed import best_of
from pointsman import POLICIES, read_workload, workload_of_columns
from pointsman.costs.iteration import IterationCosts
from pointsman.sim.batching import BatchingFleet, Engine, Split, simulate_fleet

# A round figure for an 8 B model on one data-centre GPU.
COSTS = IterationCosts(6.0, 0.05, 0.05, 1e-5, 5e-7)
REQUESTS = 10_000
LLAMA_8B_KV_BYTES = 131_072.0
NVLINK_BYTES_PER_MS = 4.5e8
MEMORY_OF = ("queue_aware", "fewest_misses")


def synthetic(rate_rps: float, requests: int = REQUESTS):
    rng = np.random.default_rng(0)
    return workload_of_columns(
        np.cumsum(rng.exponential(1000.0 / rate_rps, requests)),
        prompt_tokens=np.full(requests, 1000),
        output_tokens=np.full(requests, 200),
    )


def rate(workload, policy: str, fleet: BatchingFleet) -> tuple[int, object]:
    rule = POLICIES[policy]
    simulate_fleet(workload, rule, fleet)  # compiled apart
    seconds, run = best_of(3, lambda: simulate_fleet(workload, rule, fleet))
    return round(len(workload) / seconds), run


def trace_fleet() -> tuple[object, BatchingFleet]:
    workload = read_workload(PUBLIC if PUBLIC.is_file() else EXAMPLE)
    engine = Engine(COSTS, kv_blocks=2000, block_size=512, max_num_seqs=128)
    return workload, BatchingFleet.of(engine, 4)


def peak_mb() -> int:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000)


def memory_of(policy: str) -> None:
    """Print the peak memory of this process after one run."""
    workload, fleet = trace_fleet()
    simulate_fleet(workload, POLICIES[policy], fleet)
    print(json.dumps({"policy": policy, "peak_mb": peak_mb()}))


def main() -> None:
    roomy = Engine(COSTS, kv_blocks=40_000, max_num_batched_tokens=2048)
    four = BatchingFleet.of(roomy, 4)
    apart = BatchingFleet((roomy,) * 4, Split(2, LLAMA_8B_KV_BYTES, NVLINK_BYTES_PER_MS))
    cases = {
        "20 requests/s": (synthetic(20.0), four),
        "four times as many": (synthetic(20.0, 4 * REQUESTS), four),
        "twice the capacity": (synthetic(160.0), four),
        "KV pressure": (synthetic(20.0), BatchingFleet.of(replace(roomy, kv_blocks=700), 4)),
        "2 prefill, 2 decode": (synthetic(20.0), apart),
    }
    for name, (workload, fleet) in cases.items():
        found, run = rate(workload, "round_robin", fleet)
        events = int(run.replicas["events"].sum()) / len(workload)
        row = {"case": name, "requests_per_s": found, "events_per_request": round(events, 1)}
        print(json.dumps({**row, "preemptions": int(run.preemptions.sum())}))
    workload, fleet = trace_fleet()
    for policy in POLICIES:
        found, _ = rate(workload, policy, fleet)
        print(
            json.dumps({"trace": workload.source.name, "policy": policy, "requests_per_s": found})
        )
    for policy in MEMORY_OF:
        subprocess.run([sys.executable, __file__, policy], check=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        memory_of(sys.argv[1])
    else:
        main()
