"""Reads a trace file by the rules of the Trace Event Format, and knows nothing of who wrote it.

Refused (an AssertionError): a slice that is not closed, or is closed by an end that is not its own;
times that go back on a track; slices that overlap; a process or a track without a name, a track
that two processes share; an arrow without two ends, or whose ends lie in no slice.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

PHASES = {"B", "E", "i", "C", "s", "f", "M"}


@dataclass
class Slice:
    process: str
    track: str
    name: str
    begin_us: Decimal
    args: dict
    end_us: Decimal | None = None


@dataclass
class Trace:
    slices: list[Slice] = field(default_factory=list)
    instants: list[tuple[str, str, Decimal, dict]] = field(default_factory=list)
    counters: dict[tuple[str, str], list[tuple[Decimal, dict]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    arrows: list[tuple[Slice, Slice]] = field(default_factory=list)
    about: dict = field(default_factory=dict)
    processes: dict[int, str] = field(default_factory=dict)

    def ms(self, name: str, process: str = "") -> dict[str, tuple[float, float]]:
        """Begin and end of each request's slice of that name, in ms."""
        return {
            each.args["request"]: (float(each.begin_us) / 1000, float(each.end_us) / 1000)
            for each in self.slices
            if each.name == name and each.process.startswith(process)
        }


def read_trace(path: Path) -> Trace:
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    assert content.startswith(b'{"'), "how readers recognise the form"
    document = json.loads(content, parse_float=Decimal)
    trace = Trace(about=document["otherData"])
    threads = _names(trace, document["traceEvents"])
    open_slices: dict[tuple[int, int], list[Slice]] = defaultdict(list)
    last_us: dict[tuple[int, int | None], Decimal] = {}
    tails: dict[tuple[str, int], Slice] = {}
    heads: dict[tuple[str, int], Slice] = {}
    for event in document["traceEvents"]:
        phase, pid, tid = event["ph"], event["pid"], event.get("tid")
        assert phase in PHASES
        if phase == "M":
            continue
        at_us = event["ts"]
        assert at_us >= last_us.get((pid, tid), Decimal(0)), "times go on"
        last_us[pid, tid] = at_us
        process = trace.processes[pid]
        if phase == "C":
            assert all(isinstance(value, int | Decimal) for value in event["args"].values())
            trace.counters[process, event["name"]].append((at_us, event["args"]))
            continue
        opened = open_slices[pid, tid]
        if phase == "B":
            assert not opened, "one slice at a time on a track"
            begun = Slice(process, threads[tid], event["name"], at_us, event["args"])
            opened.append(begun)
            trace.slices.append(begun)
        elif phase == "E":
            opened.pop().end_us = at_us
        elif phase == "i":
            assert event["s"] in ("g", "p", "t")
            trace.instants.append((process, event["name"], at_us, event["args"]))
        else:
            ends = {"s": tails, "f": heads}[phase]
            key = (event["cat"], event["name"], event["id"])
            assert key not in ends, "an arrow has one end of each kind"
            ends[key] = opened[-1]
    assert not any(open_slices.values()), "every slice ends"
    assert tails.keys() == heads.keys()
    trace.arrows = [(tails[key], heads[key]) for key in tails]
    assert all(tail.begin_us <= head.begin_us for tail, head in trace.arrows)
    _check_cut_times(document["traceEvents"])
    return trace


def _names(trace: Trace, events: list[dict]) -> dict[int, str]:
    """The name of each track; of the processes into the trace."""
    threads: dict[int, str] = {}
    owners: dict[int, int] = {}
    for event in events:
        if event["ph"] == "M" and event["name"] == "process_name":
            trace.processes[event["pid"]] = event["args"]["name"]
        elif event["ph"] == "M" and event["name"] == "thread_name":
            threads[event["tid"]] = event["args"]["name"]
    for event in events:
        assert event["pid"] in trace.processes
        if "tid" in event:
            assert event["tid"] in threads
            assert owners.setdefault(event["tid"], event["pid"]) == event["pid"]
    return threads


def _check_cut_times(events: list[dict]) -> None:
    """A reader that cuts microseconds as doubles down to nanoseconds sees no overlap either."""
    ends: dict[int, int] = {}
    for event in events:
        if event["ph"] in ("B", "E"):
            at_ns = int(float(event["ts"]) * 1000.0)
            assert at_ns >= ends.get(event["tid"], 0)
            ends[event["tid"]] = at_ns
