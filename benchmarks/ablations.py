"""fewest_misses with one part taken away at a time: what each part is worth.

    python benchmarks/ablations.py [KIND,...] [FLEET,...]

The load held in each cell of generated traffic and fleets (``pointsman policies bench``), over what
the whole rule holds, and the worst TTFT there over its worst TTFT. ``priced`` with its defaults is
the whole rule: the first row says whether it is.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pointsman.comparison.bench_fleets import fleets_named
from pointsman.comparison.bench_traffic import traffic_named
from pointsman.comparison.held_load import Cell, Target, held_load
from pointsman.metrics.goodput import Objectives
from pointsman.policies.catalogue import POLICIES
from pointsman.policies.fewest_misses import MOST_LATER, decoding_misses, own_miss, waiting_misses
from pointsman.policies.policy import FULL_WORK_MS, ITERATION_MS, WORK_MS, policy
from pointsman.policies.waits import wait_ms

TTFT_MS, TPOT_MS, DECODING, WAITING, WORK_PRICE, NORMALISED, BOUND = range(7)

MINUTES = 12.0
TARGET = Target(Objectives(ttft_ms=3000.0, tpot_ms=60.0))

TAKEN_AWAY = {
    "nothing": {},
    "N of those that decode": {"decoding": 0.0},
    "N of those that wait": {"waiting": 0.0},
    "both N": {"decoding": 0.0, "waiting": 0.0},
    "work price 9 -> 1": {"work_price": 1.0},
    "normalising the work price": {"normalised": 0.0},
    "the bound on lateness": {"bound": 1e9},
}


@policy(
    rule="fewest_misses, with a weight on each of its parts.",
    source="ours (docs/policies.md)",
    reasons=("fewest_misses",),
    parameters={
        "ttft_ms": 3000.0,
        "tpot_ms": 60.0,
        "decoding": 1.0,
        "waiting": 1.0,
        "work_price": 9.0,
        "normalised": 1.0,
        "bound": MOST_LATER,
    },
    reads=("queue", "prefix", "work", "decode", "in_flight"),
)
def priced(request, view, parameters, in_flight):
    ttft_ms = parameters[TTFT_MS]
    mean, earliest = 0.0, np.inf
    for c in range(view.shape[1]):
        mean += view[FULL_WORK_MS, c] / view.shape[1]
        earliest = min(earliest, wait_ms(request, view, c) + view[WORK_MS, c])
    best = 0
    least = np.inf
    for c in range(view.shape[1]):
        r = int(in_flight.replica_of[c, 0])
        wait = wait_ms(request, view, c)
        work = view[WORK_MS, c]
        tpot = (parameters[TPOT_MS], view[ITERATION_MS, c])
        if wait + work > max(ttft_ms, parameters[BOUND] * earliest):
            continue
        share = mean / view[FULL_WORK_MS, c] if parameters[NORMALISED] == 1.0 else 1.0
        price = wait + parameters[WORK_PRICE] * work * share + view[ITERATION_MS, c]
        total = own_miss(wait + work, ttft_ms) + price / (3.0 * ttft_ms)
        inflicted = decoding_misses(in_flight, r, request.now_ms, wait, work, tpot)
        total += parameters[DECODING] * inflicted
        total += parameters[WAITING] * waiting_misses(in_flight, r, work, tpot)
        if total < least:
            least = total
            best = c
    return best, 0


def main(kinds: str = "system,turns,unshared,long", fleets: str = "4,mixed") -> None:
    ratios: dict[str, list[float]] = {name: [] for name in TAKEN_AWAY}
    tails: dict[str, list[float]] = {name: [] for name in TAKEN_AWAY}
    for fleet in fleets_named(fleets):
        for trace in traffic_named(kinds):
            workload = trace.offered(fleet, MINUTES, seed=0)
            engines = fleet.assembled(workload.block_size_tokens)
            cell = Cell(workload, engines, fleet.conditions)
            whole = held_load(cell, POLICIES["fewest_misses"], TARGET)
            row: dict[str, object] = {"trace": trace.name, "fleet": fleet.name}
            for name, without in TAKEN_AWAY.items():
                held = held_load(cell, priced.bind(**without), TARGET, whole.load_ratio)
                ratios[name].append(held.load_ratio / whole.load_ratio)
                tails[name].append(held.at.worst_ttft_ms / whole.at.worst_ttft_ms)
                row[name] = [round(ratios[name][-1], 3), round(tails[name][-1], 2)]
            print(json.dumps(row), flush=True)
    for name in TAKEN_AWAY:
        held, worst = geometric_mean(ratios[name]), geometric_mean(tails[name])
        print(json.dumps({"without": name, "load": round(held, 3), "worst_ttft": round(worst, 2)}))


def geometric_mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


if __name__ == "__main__":
    main(*sys.argv[1:])
