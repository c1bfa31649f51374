"""The compiled engine against the plain-Python rule: the same columns, the same results.

    python benchmarks/engine_speed.py [--requests 200000] [--oracle-requests 20000]

Prints the ratios of times per request, best of several runs of each, in this process, against
two forms of the plain rule: `records` is the lesson's own, a list of dicts in and out; `columns`
takes and gives lists and builds no dicts. The targets are for the first. The plain rules are timed
on fewer requests where they are slow (their time a request does not depend on how many there are).
The results for all requests are compared bit for bit, which takes most of the minute.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pointsman import POLICIES, FifoFleet, Routed, simulate, workload_of_columns
from tests.oracle import Columns, Timeline, route, route_records

TARGETS = {"round_robin": 60, "queue_aware": 200, "locality_aware": 100}
REPLICAS = (4, 16, 64, 256)
LOAD = 0.9
MEAN_SERVICE_MS = 10.0


def columns_for(replicas: int, requests: int) -> Columns:
    """Poisson arrivals at 90 % load, exponential service, 1,000 prefixes with Zipf popularity,
    sessions of ten turns of which some 500 are alive at a time."""
    rng = np.random.default_rng(7)
    return Columns(
        arrival_ms=np.cumsum(rng.exponential(MEAN_SERVICE_MS / replicas / LOAD, requests)),
        service_ms=rng.exponential(MEAN_SERVICE_MS, requests),
        prefix=rng.zipf(1.5, requests) % 1000,
        session=(np.arange(requests) + rng.integers(0, 5000, requests)) // 10,
    )


def workload_of(columns: Columns):
    n = len(columns.arrival_ms)
    return workload_of_columns(
        columns.arrival_ms,
        service_ms=columns.service_ms,
        session=columns.session,
        chain_start=np.arange(n + 1),
        chain_blocks=columns.prefix,
    )


def best_of(runs: int, work) -> tuple[float, object]:
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - start)
    return best, result


def records_of(lists: Columns) -> list[dict]:
    return [
        {
            "request_id": f"r{index:07d}",
            "arrival_ms": arrival,
            "service_ms": service,
            "prefix_key": prefix,
            "session_id": session,
        }
        for index, (arrival, service, prefix, session) in enumerate(zip(*lists, strict=True))
    ]


def check(routed: Routed, expected: Timeline) -> None:
    reasons = routed.policy.reasons
    assert routed.replica.tolist() == expected.replica
    assert [reasons[reason] for reason in routed.reason.tolist()] == expected.reason
    assert routed.start_ms.tolist() == expected.start_ms
    assert routed.finish_ms.tolist() == expected.finish_ms
    assert routed.service_ms.tolist() == expected.service_ms
    assert (routed.cached_tokens > 0).tolist() == expected.hit


def measure(policy: str, replicas: int, requests: int, oracle_requests: int) -> dict:
    columns = columns_for(replicas, requests)
    few = max(2000, min(oracle_requests, 40 * oracle_requests // replicas))
    lists = Columns(*(column[:few].tolist() for column in columns))
    records = records_of(lists)
    workload, fleet = workload_of(columns), FifoFleet(replicas)
    simulate(workload, POLICIES[policy], fleet)  # compiled apart
    columns_s, _ = best_of(3, lambda: route(lists, replicas, policy))
    records_s, _ = best_of(3, lambda: route_records(records, replicas, policy))
    ours_s, routed = best_of(7, lambda: simulate(workload, POLICIES[policy], fleet))
    check(routed, route(Columns(*(column.tolist() for column in columns)), replicas, policy))
    ours_ns = ours_s / requests * 1e9
    return {
        "policy": policy,
        "replicas": replicas,
        "engine_ns": round(ours_ns, 1),
        "records_ns": round(records_s / few * 1e9),
        "columns_ns": round(columns_s / few * 1e9),
        "ratio_records": round(records_s / few * 1e9 / ours_ns),
        "ratio_columns": round(columns_s / few * 1e9 / ours_ns),
        "target": TARGETS[policy],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--oracle-requests", type=int, default=20_000)
    arguments = parser.parse_args()
    for policy in TARGETS:
        for replicas in REPLICAS:
            row = measure(policy, replicas, arguments.requests, arguments.oracle_requests)
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
