"""How much one core of the load client carries, and how late it is then, in one run.

    python benchmarks/client.py [--rates 50,100,...] [--seconds S]

The client runs on one core; a stand-in for a replica (router_load.c), which streams 64 events 20 ms
apart, on another. Requests come at random instants (Poisson). Of each rate: CPU a stream and an
event, the client's schedule delay and loop lag, and how far the TTFT that it saw from the send is
from the 20 ms that it was, and why the client says of itself that it was the bottleneck, if so. The
sweep ends at the first rate at which it fills its core or does not reach the rate.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.router_stand import Stand
from pointsman.bench.client.figures import figures
from pointsman.bench.client.load import Load, Warmup
from pointsman.bench.client.measure import measure
from pointsman.bench.client.target import Target
from pointsman.bench.client.tokenizer import Lengths
from pointsman.workload.arrivals import PoissonArrivals
from pointsman.workload.streams import stream
from pointsman.workload.workload import workload_of_columns

TTFT_MS = 20.0  # of the stand-in
EVENTS = 64
FULL, REACHED = 90.0, 0.95
RATES = "50,100,200,300,400,500,600,700,800"

Row = dict[str, Any]


def measured(url: str, rate: float, seconds: float) -> Row:
    """One rate, in this process."""
    count = int(rate * seconds)
    workload = workload_of_columns(
        PoissonArrivals(rate).draw_ms(count, stream(0, "client benchmark")),
        prompt_tokens=np.full(count, 10),
        output_tokens=np.full(count, EVENTS),
    )
    load = Load(workload, warmup=Warmup(ms=1_000.0))
    result = measure(Target(url, "m"), load, lengths=Lengths())
    found, disturbed = figures(result), result.disturbance
    ended = [row for row in result.rows if row.status == "ok"]
    span_s = (max(row.end_ms or 0.0 for row in result.rows) - result.rows[0].intended_ms) / 1e3
    cpu_us = (disturbed.cpu_fraction or 0.0) * span_s * 1e6 / len(result.rows)
    ttft = found.metrics.ttft_from_send_ms
    return {
        "rate": rate,
        "achieved": disturbed.achieved_rps,
        "events a second": rate * EVENTS,
        "open, most": round(rate * EVENTS * TTFT_MS / 1e3),
        "errors": len(result.rows) - len(ended),
        "CPU, %": 100.0 * (disturbed.cpu_fraction or 0.0),
        "CPU a stream, us": cpu_us,
        "CPU an event, us": cpu_us / EVENTS,
        "delay p50, ms": disturbed.schedule_delay_ms.p50,
        "delay p99, ms": disturbed.schedule_delay_ms.p99,
        "lag p50, ms": disturbed.loop_lag_ms.p50,
        "lag p99, ms": disturbed.loop_lag_ms.p99,
        "TTFT p50 off, ms": None if ttft.p50 is None else ttft.p50 - TTFT_MS,
        "TTFT p99 off, ms": None if ttft.p99 is None else ttft.p99 - TTFT_MS,
        "bottleneck": ", ".join(sorted({why.partition(":")[0] for why in disturbed.bottleneck})),
    }


def sweep(rates: list[float], seconds: float) -> list[Row]:
    """Each rate in a process of its own, until one is too much."""
    rows: list[Row] = []
    with Stand() as stand:
        url = f"http://127.0.0.1:{stand.replicas[0]}"
        for rate in rates:
            command = [sys.executable, __file__, "--measure", url, str(rate), str(seconds)]
            process = stand.spawn(command, stand.cores.proxies)
            printed, _ = process.communicate(timeout=seconds + 120)
            if process.returncode:
                raise SystemExit(f"the client ended with {process.returncode}")
            rows.append(json.loads(printed.splitlines()[-1]))
            print(f"{rate:g} a second: {rows[-1]['bottleneck'] or 'carried'}", file=sys.stderr)
            if rows[-1]["CPU, %"] > FULL or rows[-1]["achieved"] < REACHED * rate:
                break
    return rows


def table(rows: list[Row]) -> str:
    names = list(rows[0])
    lines = [names, ["---"] * len(names), *([_shown(row[name]) for name in names] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rates", default=RATES, help="streams a second, with commas between")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--measure", nargs=3, metavar=("URL", "RATE", "SECONDS"))
    arguments = parser.parse_args()
    if arguments.measure:
        url, rate, seconds = arguments.measure
        print(json.dumps(measured(url, float(rate), float(seconds))))
        return
    rates = [float(rate) for rate in arguments.rates.split(",")]
    print(table(sweep(rates, arguments.seconds)))


if __name__ == "__main__":
    main()
