"""Real llama.cpp groups against what was predicted of them before they ran.

    python benchmarks/prediction.py [--requests N] [--rate RPS] [--repeats N] [--policy NAME]
                                    [--quiet CORES]

G0 is one server behind the router, each other group two; one thread a server, each on a core of its
own where there are several. G0's repeats come first, for the costs are from them; then the groups
take turns, forwards and backwards. The cores that others kept busy meanwhile are printed with each
load: with more than a tenth of one, absolute times say little. With --quiet such a load is sent
again, when the machine is quiet, whatever it measured. Needs the extra [llamacpp].
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pointsman.bench.client.arrivals import ClosedLoop, Loop, OpenLoop
from pointsman.bench.client.figures import seen_of
from pointsman.bench.client.load import Load
from pointsman.bench.client.measure import measure
from pointsman.bench.client.rows import Row
from pointsman.bench.client.target import Target
from pointsman.bench.engines.llamacpp import LlamaCpp
from pointsman.bench.engines.protocol import Instance, Model
from pointsman.bench.engines.running import Running, started
from pointsman.bench.engines.tiny_model import tiny_model
from pointsman.bench.experiment import Group, GroupRun
from pointsman.bench.prediction.calibrated import calibrated
from pointsman.bench.prediction.limits import LLAMACPP_BATCH_TOKENS, EngineLimits
from pointsman.bench.prediction.measured_group import MeasuredGroup, cached_token_fraction
from pointsman.bench.prediction.offered import Offered
from pointsman.bench.prediction.predicted import predict
from pointsman.bench.prediction.report import against
from pointsman.evidence.measured import MeasuredRun, Told, group_figures
from pointsman.report.prediction import prediction_text
from pointsman.workload.arrivals import PoissonArrivals
from pointsman.workload.distributions import distribution_of_text
from pointsman.workload.generate import SystemPrompts, Traffic, generate
from pointsman.workload.workload import Workload

SLOTS, CONTEXT = 8, 4096
NOT_TOLD = {
    name: Told(reason="nobody looks here")
    for name in ("queue_wait_ms", "kv_handoff_ms", "kv_handoff_bytes", "peak_memory_mb")
}


@dataclass(frozen=True)
class Bench:
    """What every group is offered, and where its files go."""

    offered: Offered
    folder: Path
    quiet: float  # the most cores that others may keep busy


def run_of(policy: str | None) -> GroupRun:
    if policy is None:
        return GroupRun("g0", Group(name="g0", replicas=1), None)
    return GroupRun(policy, Group(name=policy, replicas=2, policies=(policy,)), policy)


def workload(requests: int, rate_rps: float) -> Workload:
    drawn = {
        "prompt": "lognormal:mean=150,sigma=0.6",
        "output": "lognormal:mean=40,sigma=0.5",
        "shared": "128",
    }
    lengths = {name: distribution_of_text(text, name) for name, text in drawn.items()}
    traffic = Traffic(
        requests=requests,
        arrivals=PoissonArrivals(rate_rps),
        prompt_tokens=lengths["prompt"],
        output_tokens=lengths["output"],
        system_prompts=SystemPrompts(lengths["shared"], 4),
    )
    return generate(traffic, 1)


def instances(count: int) -> list[Instance]:
    cores = sorted(os.sched_getaffinity(0))
    model = Model(str(tiny_model()), "tiny")
    return [
        Instance(model, max_running=SLOTS, context_tokens=CONTEXT, cores=(cores[k % len(cores)],))
        for k in range(count)
    ]


@contextmanager
def routed(replicas: list[Running], policy: str | None) -> Iterator[tuple[str, int]]:
    """The router's address and its process."""
    command = [sys.executable, "-m", "pointsman", "serve", "--listen", "127.0.0.1:0"]
    command += ["--models-interval-s", "0", "--policy", policy or "round_robin"]
    command += [word for each in replicas for word in ("--replica", each.url)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        found = re.search(r"http://[\d.]+:\d+", process.stdout.readline())
        yield found[0], process.pid
    finally:
        process.terminate()
        process.wait()


def machine_s() -> float:
    """Seconds that all cores were busy since the start, in sum."""
    with open("/proc/stat") as file:
        times = [int(word) for word in file.readline().split()[1:9]]
    return (sum(times) - times[3] - times[4]) / os.sysconf("SC_CLK_TCK")


def process_s(pids: list[int]) -> float:
    used = 0
    for pid in pids:
        words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        used += int(words[11]) + int(words[12])
    return used / os.sysconf("SC_CLK_TCK")


def wait_until_quiet(quiet: float) -> None:
    """At most ten minutes."""
    ends_s = time.monotonic() + 600.0
    while time.monotonic() < ends_s:
        before = machine_s()
        time.sleep(1.0)
        if machine_s() - before <= quiet:
            return


def load(bench: Bench, run: GroupRun, number: int) -> tuple[Row, ...]:
    """One repeat; those that were disturbed are sent again, at most twenty times."""
    for _ in range(20):
        rows, others = load_once(bench, run, number)
        print(f"{run.name} {number}: others busy {others:.2f} cores", flush=True)
        if others <= bench.quiet:
            break
    return rows


def load_once(bench: Bench, run: GroupRun, number: int) -> tuple[tuple[Row, ...], float]:
    """On fresh servers; and the cores that others kept busy meanwhile."""
    folder = Path(tempfile.mkdtemp(dir=bench.folder))
    with (
        started(LlamaCpp(), instances(run.group.engines), folder) as replicas,
        routed(replicas, run.policy) as (url, router),
    ):
        pids = [os.getpid(), router, *(pid for each in replicas for pid in each.members())]
        wait_until_quiet(bench.quiet)
        begun_s, machine, ours = time.monotonic(), machine_s(), process_s(pids)
        offered = bench.offered
        rows = measure(
            Target(url, "tiny", "llamacpp"), Load(offered.workload, offered.loop, seed=number)
        ).rows
        others = machine_s() - machine - (process_s(pids) - ours)
        took_s = time.monotonic() - begun_s
    return rows, others / took_s


def measured(name: str, repeats: list[tuple[Row, ...]]) -> MeasuredGroup:
    found = group_figures([MeasuredRun(seen_of(rows).answers) for rows in repeats], NOT_TOLD)
    intervals = {
        name: each.interval for name, each in found.details.items() if each.interval is not None
    }
    cached = cached_token_fraction(row for rows in repeats for row in rows)
    return MeasuredGroup(name, found.metrics, intervals, cached_token_fraction=cached)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=120)
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument("--concurrency", type=int, help="a closed loop in place of the rate")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--policy", action="append", help="(round_robin and least_requests)")
    parser.add_argument("--quiet", type=float, default=1e9, metavar="CORES")
    asked = parser.parse_args()
    loop: Loop = ClosedLoop(asked.concurrency) if asked.concurrency else OpenLoop()
    offered = Offered(workload(asked.requests, asked.rate), loop)
    runs = [run_of(policy) for policy in asked.policy or ("round_robin", "least_requests")]
    limits = EngineLimits(SLOTS, LLAMACPP_BATCH_TOKENS, context_tokens=CONTEXT, shares_late=True)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(offered, Path(folder), asked.quiet)
        one = run_of(None)
        rows = {one.name: [load(bench, one, k) for k in range(asked.repeats)]}
        costs = calibrated(one, rows[one.name], offered, limits)
        made_at = datetime.now(UTC).isoformat()
        predictions = [predict(costs, run, offered, made_at) for run in (one, *runs)]
        for k in range(asked.repeats):
            for run in runs if k % 2 == 0 else reversed(runs):
                rows.setdefault(run.name, []).append(load(bench, run, k))
    groups = {name: measured(name, repeats) for name, repeats in rows.items()}
    print(f"\ncosts: {costs.file.costs}\nbefore the engine: {costs.overhead_ms:.3g} ms\n")
    print(prediction_text(against(predictions, groups), "table"))


if __name__ == "__main__":
    main()
