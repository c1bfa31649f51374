"""Any trace into a Workload: the format is recognised by content, compression by first bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType

import msgspec

from pointsman.core.errors import InputError, shown, unknown_name, wrong_value
from pointsman.workload import azure, bailian, burstgpt, jsonl, mooncake, timed_trace, vidur
from pointsman.workload.reading import NumberedLines, Reader, Reading, ReadOptions
from pointsman.workload.steps import spread_arrivals
from pointsman.workload.text import TextFile
from pointsman.workload.workload import Source, Workload

FORMATS: Mapping[str, Reader] = MappingProxyType(
    {
        "pointsman": jsonl.read,
        "mooncake": mooncake.read,
        "azure": azure.read,
        "bailian": bailian.read,
        "burstgpt": burstgpt.read,
        "vidur": vidur.read,
        "vllm_timed_trace": timed_trace.read,
    }
)
# Those to which the options time_unit and failed_requests apply.
WITH_TIME_UNIT = frozenset(("mooncake", "bailian", "vidur", "vllm_timed_trace"))
WITH_FAILURES = frozenset(("burstgpt",))

_HEADERS = MappingProxyType(
    {"azure": azure.is_header, "burstgpt": burstgpt.is_header, "vidur": vidur.is_header}
)

_DEFAULTS = ReadOptions()
# With bad lines left out, the format shows in the first good line among so many.
_LINES_TRIED = 100
_BYTES_TRIED = 1 << 20


def read_workload(path: str | Path, options: ReadOptions = _DEFAULTS) -> Workload:
    """Read a trace of any known format; ``-`` is standard input.

    vLLM's timed traces look like Mooncake's and are read as such unless they are named.

    The source of the workload names the file and holds the SHA-256 of its bytes, the lines left
    out and the rows out of order; rows are sorted by arrival. Raises InputError, naming file and
    line, for whatever is wrong with the content, and MachineError where the file cannot be read.
    """
    with TextFile(path, options.on_bytes) as file:
        lines = file.lines()
        head = _head(lines, _LINES_TRIED if options.skip_bad else 1)
        if not head:
            raise InputError(f"{file.name}: the file is empty; expected requests, one a line")
        if _begins_log(head[0][1]):
            raise _no_workload(file)
        name = _format_of(head, file.name, options)
        if options.failed_requests is not None and name not in WITH_FAILURES:
            raise wrong_value(
                file.name, "failed_requests", options.failed_requests, f"none for {name}"
            )
        reading = Reading(file.name, options)
        builder = FORMATS[name](chain(head, lines), reading)
        if builder.rows == 0:
            raise _no_requests(reading)
        source = Source(
            name=Path(file.name).name,
            format=name,
            sha256=file.sha256(),
            skipped_lines=reading.skipped_lines,
            failures_left_out=reading.failures_left_out,
            lines=tuple(reading.lines),
        )
    workload = builder.build(source)
    if options.spread_seed is not None:
        return spread_arrivals(workload, options.spread_seed)
    return workload


def is_decision_log(path: str | Path) -> bool:
    """Whether a plain file begins as a decision log of the simulator or router does.

    A pipe is left unread, since what is read of it is gone, and a compressed log is none: it is
    unpacked first.
    """
    if not Path(path).is_file():
        return False
    with TextFile(path) as file:
        first = next(file.lines(), None)
        return first is not None and file.compression is None and _begins_log(first[1])


def _begins_log(line: bytes) -> bool:
    return bytes(_keys(line).get("event", b"")) == b'"log"'


def _head(lines: NumberedLines, most: int) -> list[tuple[int, bytes]]:
    """Up to ``most`` of the first lines, and no more after a MiB of them."""
    head: list[tuple[int, bytes]] = []
    for line in islice(lines, most):
        head.append(line)
        if sum(len(text) for _, text in head) > _BYTES_TRIED:
            break
    return head


def _no_workload(file: TextFile) -> InputError:
    found, way = "a decision log", "`pointsman trace convert` makes one of it"
    if file.compression is not None:
        found, way = f"{found} packed with {file.compression}", f"unpack it, then {way}"
    elif not file.is_file:
        found, way = f"{found} from a pipe", f"save it to a file first, then {way}"
    return InputError(f"{file.name}: {found}, not a workload; {way}")


def _format_of(head: Sequence[tuple[int, bytes]], name: str, options: ReadOptions) -> str:
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
            f" expected one of {', '.join(FORMATS)} (--format-in names one;"
            " docs/formats.md shows how each looks)"
        )
    return found


def _format_of_line(line: bytes) -> str | None:
    for name, is_header in _HEADERS.items():
        if is_header(line):
            return name
    keys = _keys(line)
    if bailian.SIGN in keys:
        return "bailian"
    if keys.keys() & mooncake.SIGNS:
        return "mooncake"
    # Any other JSON object is taken for ours, whose reader says what is wrong with it.
    return "pointsman" if line.lstrip().startswith(b"{") else None


def _keys(line: bytes) -> dict[str, msgspec.Raw]:
    try:
        return msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def _no_requests(reading: Reading) -> InputError:
    left_out = f", and {reading.skipped_lines} bad lines" if reading.skipped_lines else ""
    return InputError(f"{reading.name}: no requests{left_out}; expected at least one good line")
