"""Whole-process times of the command line: warm, with an empty compile cache, and --help.

    python benchmarks/command_time.py [--trace FILE] [--replicas 8] [--runs 5]

The trace defaults to the public Mooncake conversation trace beside the checkout, else to the
example workload. Medians of several runs; the cold runs each get a new, empty cache folder.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PUBLIC = ROOT.parent / "shared" / "traces" / "mooncake_conversation.jsonl"
EXAMPLE = ROOT / "examples" / "conversation.jsonl.gz"
TARGET_WARM_S = 2.5
TARGET_HELP_S = 0.3


def seconds(words: list[str], cache: str) -> float:
    environment = {**os.environ, "XDG_CACHE_HOME": cache}
    environment.pop("NUMBA_CACHE_DIR", None)
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "pointsman", *words],
        env=environment,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trace", type=Path, default=PUBLIC if PUBLIC.is_file() else EXAMPLE)
    parser.add_argument("--replicas", type=int, default=8)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    compare = ["compare", str(arguments.trace), "--replicas", str(arguments.replicas)]
    cold = []
    for _ in range(arguments.runs):
        with tempfile.TemporaryDirectory() as cache:
            cold.append(seconds(compare, cache))
    with tempfile.TemporaryDirectory() as cache:
        seconds(compare, cache)
        warm = [seconds(compare, cache) for _ in range(arguments.runs)]
        helped = [seconds(["--help"], cache) for _ in range(arguments.runs)]
    row = {
        "trace": arguments.trace.name,
        "warm_s": round(statistics.median(warm), 2),
        "target_warm_s": TARGET_WARM_S,
        "cold_s": round(statistics.median(cold), 2),
        "help_s": round(statistics.median(helped), 3),
        "target_help_s": TARGET_HELP_S,
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
