"""Any trace into a Workload: the format is recognised by content, compression by first bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from pointsman.core.errors import InputError, shown, unknown_name
from pointsman.workload import azure, jsonl, mooncake
from pointsman.workload.reading import Reader, Reading, ReadOptions
from pointsman.workload.steps import spread_arrivals
from pointsman.workload.text import TextFile
from pointsman.workload.workload import Source, Workload

FORMATS: Mapping[str, Reader] = MappingProxyType(
    {"pointsman": jsonl.read, "mooncake": mooncake.read, "azure": azure.read}
)

_DEFAULTS = ReadOptions()
# With bad lines left out, the format shows in the first good line among so many.
_LINES_TRIED = 100


def read_workload(path: str | Path, options: ReadOptions = _DEFAULTS) -> Workload:
    """Read a trace of any known format; ``-`` is standard input.

    The source of the workload names the file and holds the SHA-256 of its bytes, the lines left
    out and the rows out of order; rows are sorted by arrival. Raises InputError, naming file and
    line, for whatever is wrong with the content, and MachineError where the file cannot be read.
    """
    with TextFile(path, options.on_bytes) as file:
        lines = file.lines()
        head = list(islice(lines, _LINES_TRIED if options.skip_bad else 1))
        if not head:
            raise InputError(f"{file.name}: the file is empty; expected requests, one a line")
        name = _format_of(head, file.name, options)
        reading = Reading(file.name, options)
        builder = FORMATS[name](chain(head, lines), reading)
        if builder.rows == 0:
            raise _no_requests(reading)
        source = Source(
            name=Path(file.name).name,
            format=name,
            sha256=file.sha256(),
            skipped_lines=reading.skipped_lines,
        )
    workload = builder.build(source)
    if options.spread_seed is not None:
        return spread_arrivals(workload, options.spread_seed)
    return workload


def is_decision_log(path: str | Path) -> bool:
    """Whether the first line of a file is that of a decision log of the simulator or router."""
    with TextFile(path) as file:
        first = next(file.lines(), None)
        return first is not None and _keys(first[1]).get("event") == "log"


def _format_of(head: Sequence[tuple[int, bytes]], name: str, options: ReadOptions) -> str:
    if _keys(head[0][1]).get("event") == "log":
        raise InputError(
            f"{name}: a decision log, not a workload; `pointsman trace convert` makes one of it"
        )
    if options.format is not None:
        if options.format not in FORMATS:
            raise unknown_name("reading", "format", options.format, FORMATS)
        return options.format
    found = next(filter(None, (_format_of_line(line) for _, line in head)), None)
    if found is None:
        number, line = head[0]
        text = line[:200].decode("utf-8", "replace")
        raise InputError(
            f"{name} line {number}: {shown(text)} begins no format known here;"
            f" expected one of {', '.join(FORMATS)} (--format-in names one)"
        )
    return found


def _format_of_line(line: bytes) -> str | None:
    if azure.is_header(line):
        return "azure"
    keys = _keys(line)
    if keys.keys() & mooncake.SIGNS:
        return "mooncake"
    # Any other JSON object is taken for ours, whose reader says what is wrong with it.
    return "pointsman" if line.lstrip().startswith(b"{") else None


def _keys(line: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def _no_requests(reading: Reading) -> InputError:
    left_out = f", and {reading.skipped_lines} bad lines" if reading.skipped_lines else ""
    return InputError(f"{reading.name}: no requests{left_out}; expected at least one good line")
