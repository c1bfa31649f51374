"""How long a plan takes, and how many simulations it runs; compilation apart.

    python benchmarks/plan_speed.py [JOBS]

The public Mooncake conversation trace beside the checkout, else the example that follows it, for
llama-3.1-8b on 8 H100: all shapes, the default policies. Seconds a thousand simulations are given
too, for plans differ in how many they need, with the processor time of all processes beside them:
on a busy machine the wall clock says little.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.command_time import EXAMPLE, PUBLIC
from pointsman import ReadOptions, read_workload
from pointsman.costs.devices import device_named
from pointsman.costs.models import model_named
from pointsman.costs.roofline import Instance
from pointsman.metrics.goodput import objectives_of
from pointsman.plan.hardware import Hardware
from pointsman.plan.parallel import Workers
from pointsman.plan.plan import How, make_plan
from pointsman.plan.question import Question, default_block_size

OBJECTIVES = {"within reach": ("ttft:3000", "tpot:60"), "out of reach": ("ttft:500", "tpot:50")}


def main() -> None:
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else None
    is_public = PUBLIC.is_file()
    options = ReadOptions(spread_seed=0 if is_public else None)
    workload = read_workload(PUBLIC if is_public else EXAMPLE, options)
    single = Instance(model=model_named("llama-3.1-8b"), device=device_named("h100"))
    hardware = Hardware(single, 8, default_block_size(workload))
    how = How(workers=Workers(jobs))
    question = Question(objectives=objectives_of(["ttft:3000"]))
    make_plan((workload,), replace(hardware, gpus=1), question, how)  # compiled apart
    for name, words in OBJECTIVES.items():
        question = Question(objectives=objectives_of(words))
        before, used = time.perf_counter(), _processor_s()
        plan = make_plan((workload,), hardware, question, how)
        seconds = time.perf_counter() - before
        row = {
            "objectives": name,
            "requests": len(workload),
            "shapes": len(plan.results),
            "simulations": plan.simulations,
            "jobs": how.workers.processes,
            "seconds": round(seconds, 1),
            "seconds_per_1000": round(seconds * 1000 / plan.simulations, 1),
            "processor_s": round(_processor_s() - used, 1),
        }
        print(json.dumps(row), flush=True)


def _processor_s() -> float:
    """Of this process and of those that it started and that are still there."""
    own = os.times()
    total = own.user + own.system + own.children_user + own.children_system
    ticks = os.sysconf("SC_CLK_TCK")
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            total += (int(fields[11]) + int(fields[12])) / ticks
    return total


if __name__ == "__main__":
    main()
