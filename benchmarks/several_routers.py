"""What several routers cost that do not see what the others sent: docs/router.md has the tables.

    python benchmarks/several_routers.py [KIND,...] [POLICY,...] [MINUTES]

Generated traffic (``pointsman policies bench``) on 8 replicas. At nine tenths of the load that
``fewest_misses`` holds on one router that sees everything at once: P99 TTFT, goodput, hits and skew
of each policy on 1, 2, 4 and 8 routers, requests dealt to them at random or by session, gauges and
cache events 0, 1 and 5 s old, and gauges that nobody ever reads (cache events 1 s old then). Then
the load that each policy holds on so many routers, with signals 1 s old and without gauges, over
that of ``fewest_misses`` on the one router.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pointsman.comparison.bench_fleets import fleet_named
from pointsman.comparison.bench_traffic import traffic_named
from pointsman.comparison.held_load import Cell, Target, held_load
from pointsman.metrics.goodput import Objectives
from pointsman.metrics.serving import serving_metrics
from pointsman.policies.catalogue import POLICIES, policy_named
from pointsman.policies.policy import Policy
from pointsman.sim.batching import simulate_fleet
from pointsman.sim.conditions import Conditions
from pointsman.sim.knowledge import Signals
from pointsman.sim.outcome import answers_of, gaps_of, loads_of
from pointsman.sim.routers import RANDOM, SESSION, Routers
from pointsman.workload.arrivals import with_rate_scaled

REPLICAS = "8"
LOAD = 0.9
OBJECTIVES = Objectives(ttft_ms=3000.0, tpot_ms=60.0)
RULES = (
    "round_robin",
    "least_requests",
    "earliest_first_token",
    "locality_aware:slack_ms=1000",
    "fewest_misses",
    "session_affinity",
)
COUNTS = (1, 2, 4, 8)
NEVER_MS = 1e12
SIGNALS = {
    "0 s": Signals(),
    "1 s": Signals(1000.0, 1000.0),
    "5 s": Signals(5000.0, 5000.0),
    "no gauges": Signals(NEVER_MS, 1000.0),
}
HELD_WITH = ("1 s", "no gauges")


def figures(cell: Cell, policy: Policy) -> dict[str, float | None]:
    """What the policy comes to there."""
    run = simulate_fleet(cell.workload, policy, cell.fleet, cell.conditions)
    loads = loads_of(run)
    metrics = serving_metrics(
        answers_of(run), loads, OBJECTIVES, len(cell.fleet.engines), gaps_of(run)
    )
    goodput, busy = metrics.goodput, metrics.skews.busy
    return {
        "p99_ttft_ms": rounded(metrics.ttft_ms.p99, 0),
        "goodput": rounded(None if goodput is None else goodput.fraction, 4),
        "hits": rounded(metrics.cached_token_fraction, 4),
        "skew": rounded(metrics.skews.requests, 3),
        "busy_skew": rounded(busy, 3),
    }


def rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def main(kinds: str = "turns,system", rules: str = ",".join(RULES), minutes: str = "6") -> None:
    described = fleet_named(REPLICAS)
    target = Target(OBJECTIVES)
    for trace in traffic_named(kinds):
        workload = trace.offered(described, float(minutes), seed=0)
        one = Cell(workload, described.assembled(workload.block_size_tokens), Conditions())
        best = held_load(one, POLICIES["fewest_misses"], target).load_ratio
        cell = replace(one, workload=with_rate_scaled(workload, LOAD * best))
        for rule in rules.split(","):
            at_fixed_load(trace.name, cell, rule)
            for age in HELD_WITH:
                held_by((trace.name, age), one, rule, best)


def at_fixed_load(name: str, cell: Cell, rule: str) -> None:
    for age, signals in SIGNALS.items():
        for dealt in (RANDOM, SESSION):
            for count in COUNTS if dealt == RANDOM else COUNTS[1:]:
                conditions = Conditions(signals, routers=Routers(count, dealt))
                row = {"trace": name, "policy": rule, "age": age, "dealt": dealt, "routers": count}
                found = figures(replace(cell, conditions=conditions), policy_named(rule))
                print(json.dumps({**row, **found}), flush=True)


def held_by(place: tuple[str, str], cell: Cell, rule: str, guess: float) -> None:
    name, age = place
    for dealt in (RANDOM, SESSION):
        for count in COUNTS if dealt == RANDOM else COUNTS[1:]:
            conditions = Conditions(SIGNALS[age], routers=Routers(count, dealt))
            there = replace(cell, conditions=conditions)
            held = held_load(there, policy_named(rule), Target(OBJECTIVES), guess)
            row = {"trace": name, "policy": rule, "age": age, "dealt": dealt}
            print(
                json.dumps({**row, "routers": count, "held": round(held.load_ratio / guess, 3)}),
                flush=True,
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
