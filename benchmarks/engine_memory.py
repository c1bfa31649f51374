"""Time and memory of ten million requests on 64 replicas, locality-aware.

    python benchmarks/engine_memory.py [--requests 10000000] [--replicas 64]

A child process builds the workload (prefix keys, sessions, service times; no names), simulates
it and computes the metrics. Peak memory is the child's, less that of the same child with a
thousand requests: what Python, NumPy, Numba and the compiled code take is not a request's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile

TARGET_BYTES = 200

CHILD = """
import json, sys, time
import numpy as np
from pointsman import POLICIES, FifoFleet, service_metrics, simulate, workload_of_columns

n, replicas = int(sys.argv[1]), int(sys.argv[2])
rule, fleet = POLICIES["locality_aware"], FifoFleet(replicas)
simulate(workload_of_columns([0.0], service_ms=[1.0], session=[0]), rule, fleet)

rng = np.random.default_rng(7)
arrival_ms = rng.exponential(10.0 / replicas / 0.9, n)
np.cumsum(arrival_ms, out=arrival_ms)
session = rng.integers(0, 5000, n, dtype=np.int32)
session += np.arange(n, dtype=np.int32)
session //= 10
workload = workload_of_columns(
    arrival_ms,
    service_ms=rng.exponential(10.0, n),
    session=session,
    chain_start=np.arange(n + 1),
    chain_blocks=rng.integers(0, 1000, n, dtype=np.int32),
)
del session
start = time.perf_counter()
routed = simulate(workload, rule, fleet)
simulated_s = time.perf_counter() - start
figures = service_metrics(routed.served, replicas)
print(json.dumps({"simulate_s": simulated_s, "metrics_s": time.perf_counter() - start - simulated_s,
                  "p95_queue_wait_ms": figures.p95_queue_wait_ms}))
"""


def run_child(requests: int, replicas: int) -> tuple[dict, int]:
    """The child's figures and its peak resident bytes."""
    with tempfile.TemporaryFile() as output:
        command = [sys.executable, "-c", CHILD, str(requests), str(replicas)]
        process = subprocess.Popen(command, stdout=output)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(process.returncode)
        output.seek(0)
        return json.loads(output.read()), usage.ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=10_000_000)
    parser.add_argument("--replicas", type=int, default=64)
    arguments = parser.parse_args()
    _, idle_bytes = run_child(1000, arguments.replicas)
    figures, peak_bytes = run_child(arguments.requests, arguments.replicas)
    row = {
        "requests": arguments.requests,
        "replicas": arguments.replicas,
        **{name: round(value, 2) for name, value in figures.items()},
        "peak_mb": round(peak_bytes / 1e6),
        "bytes_per_request": round((peak_bytes - idle_bytes) / arguments.requests, 1),
        "target_bytes_per_request": TARGET_BYTES,
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
