"""A recorded run of one vLLM engine: what was asked of it, when it answered, how it was set.

A run folder holds ``meta.json``, ``requests.jsonl`` and, when there is one, ``timeseries.csv``
(docs/calibration.md). An engine takes requests in between its iterations (``run_busy_loop`` of
``vllm/v1/engine/core.py``), and stamps ``queued_ts`` then, up to an iteration after one came. When
it came is ``arrival_time``, of the client's clock. What comes just before an iteration ends does
not wait, so that the clocks differ by the least of ``queued_ts - arrival_time``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np

from pointsman.calibrate.gauges import Gauges, read_gauges
from pointsman.calibrate.setup import EngineSetup, read_setup
from pointsman.core.errors import InputError, wrong_value
from pointsman.core.files import read_file
from pointsman.sim.conditions import ClosedLoop
from pointsman.workload.beginning import beginning
from pointsman.workload.workload import Floats, Ints, Longs, Workload

REQUESTS_FILE = "requests.jsonl"
META_FILE = "meta.json"
GAUGES_FILE = "timeseries.csv"

CLIENT, QUEUED = "arrival_time", "queued_ts"

_TIMES = ("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts")


class _Line(msgspec.Struct, frozen=True, gc=False):
    """One request as it is recorded; times in s, what else a line has is not used."""

    input_toks: int
    output_toks: int
    queued_ts: float
    scheduled_ts: float
    first_token_ts: float
    last_token_ts: float
    arrival_time: float | None = None
    request_id: str | int | None = None


@dataclass(frozen=True, eq=False)
class Times:
    """When each request came and what became of it, in ms from the first arrival."""

    arrival_ms: Floats
    scheduled_ms: Floats
    first_token_ms: Floats
    finish_ms: Floats
    output_tokens: Ints

    @cached_property
    def ttft_ms(self) -> Floats:
        """From arrival to the first token."""
        return self.first_token_ms - self.arrival_ms

    @cached_property
    def e2e_ms(self) -> Floats:
        """From arrival to the last token."""
        return self.finish_ms - self.arrival_ms

    @cached_property
    def wait_ms(self) -> Floats:
        """From arrival until the engine first scheduled it."""
        return self.scheduled_ms - self.arrival_ms

    @cached_property
    def tpot_ms(self) -> Floats:
        """Per output token after the first one; NaN where there is only one."""
        further = np.where(self.output_tokens > 1, self.output_tokens - 1.0, np.nan)
        return (self.finish_ms - self.first_token_ms) / further

    def rows(self, chosen: slice | Longs) -> Times:
        """Some of the requests."""
        return Times(
            self.arrival_ms[chosen],
            self.scheduled_ms[chosen],
            self.first_token_ms[chosen],
            self.finish_ms[chosen],
            self.output_tokens[chosen],
        )


@dataclass(frozen=True, eq=False)
class Recording:
    """A run, its requests in the order of arrival.

    ``workload``: the same requests with the blocks of their prompts, where these are known.
    ``closed_loop``: each came when one before it ended; None: at its own time.
    """

    folder: Path
    setup: EngineSetup
    prompt_tokens: Ints
    times: Times
    gauges: Gauges | None
    arrivals: str  # which times of requests.jsonl are taken as arrivals
    workload: Workload | None = None
    closed_loop: ClosedLoop | None = None

    def __len__(self) -> int:
        return int(self.prompt_tokens.shape[0])

    def first(self, count: int) -> Recording:
        """The run with its first so many requests alone."""
        rows = slice(count)
        return replace(
            self,
            prompt_tokens=self.prompt_tokens[rows],
            times=self.times.rows(rows),
            workload=None if self.workload is None else beginning(self.workload, count),
        )

    @property
    def output_tokens(self) -> Ints:
        """Tokens that each request generated."""
        return self.times.output_tokens


def read_recording(folder: Path) -> Recording:
    """The run of a folder.

    Raises InputError for a file that is missing or wrong, naming its line, for a run without
    requests, and for times of a request that go back; MachineError where it cannot be read.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; expected one with {META_FILE}")
    if not (folder / META_FILE).exists():
        raise InputError(
            f"{folder / META_FILE}: no such file; expected the folder of one recorded run, with"
            f" {META_FILE} and {REQUESTS_FILE}"
        )
    setup = read_setup(folder / META_FILE)
    lines = _read_lines(folder / REQUESTS_FILE)
    _check_capacity(folder, setup, lines)
    path = folder / GAUGES_FILE
    return _recording(folder, setup, lines, read_gauges(path) if path.exists() else None)


def _recording(
    folder: Path, setup: EngineSetup, lines: list[_Line], gauges: Gauges | None
) -> Recording:
    columns = {name: np.array([getattr(line, name) for line in lines]) for name in _TIMES}
    came, arrivals = _arrivals(lines, columns)
    order = np.argsort(came, kind="stable")
    scheduled_ms, first_token_ms, finish_ms, arrival_ms = (
        (column[order] - came.min()) * 1e3 for column in (*list(columns.values())[1:], came)
    )
    output_tokens = np.array([line.output_toks for line in lines], dtype=np.int32)[order]
    return Recording(
        folder=folder,
        setup=setup,
        prompt_tokens=np.array([line.input_toks for line in lines], dtype=np.int32)[order],
        times=Times(arrival_ms, scheduled_ms, first_token_ms, finish_ms, output_tokens),
        gauges=gauges,
        arrivals=arrivals,
    )


def _arrivals(lines: list[_Line], columns: dict[str, Floats]) -> tuple[Floats, str]:
    """When each request came, in s of the engine's clock, and which times of the lines say so.

    The client's times are not believed where one lacks, or where a request would have waited to be
    queued for longer than the longest prefill, for that takes at least one iteration.
    """
    queued = columns["queued_ts"]
    if any(line.arrival_time is None for line in lines):
        return queued, QUEUED
    came = np.array([line.arrival_time for line in lines], dtype=np.float64)
    delay = queued - came
    delay -= delay.min()
    if not delay.max() <= np.max(columns["first_token_ts"] - columns["scheduled_ts"]):
        return queued, QUEUED
    return queued - delay, CLIENT


def _read_lines(path: Path) -> list[_Line]:
    decode = msgspec.json.Decoder(_Line).decode
    lines = []
    for number, text in enumerate(read_file(path).splitlines(), start=1):
        if not text.strip():
            continue
        where = f"{path} line {number}"
        try:
            line = decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(f"{where}: {error}; expected a recorded request") from None
        _check_line(line, where)
        lines.append(line)
    if not lines:
        raise InputError(f"{path}: it has no requests; expected one a line")
    return lines


def _check_line(line: _Line, where: str) -> None:
    for name in ("input_toks", "output_toks"):
        value = getattr(line, name)
        if not 1 <= value < 1 << 31:
            raise wrong_value(where, name, value, "an integer >= 1")
    for before, after in pairwise(_TIMES):
        earlier: float = getattr(line, before)
        later: float = getattr(line, after)
        if later < earlier:
            raise wrong_value(where, after, later, f"a time not before {before}, {earlier!r}")


def _check_capacity(folder: Path, setup: EngineSetup, lines: list[_Line]) -> None:
    """Refuse a request that needs more blocks than the engine is said to have."""
    if setup.kv_blocks is None:
        return
    most = max(line.input_toks + line.output_toks - 1 for line in lines)
    if most > setup.kv_blocks * setup.block_size:
        raise InputError(
            f"{folder}: a request of {most} tokens was served, and {META_FILE} states"
            f" {setup.kv_blocks} usable KV blocks of {setup.block_size} tokens; expected enough"
        )
