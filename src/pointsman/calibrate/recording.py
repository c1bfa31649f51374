"""A recorded run of one vLLM engine: what was asked of it, when it answered, how it was set.

A run folder holds ``meta.json``, ``requests.jsonl`` and, when there is one, ``timeseries.csv``
(docs/calibration.md). Arrivals are ``queued_ts``: the engine's clock, as all other times of a
request; the client's ``arrival_time`` is another clock and is not used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np

from pointsman.calibrate.gauges import Gauges, read_gauges
from pointsman.calibrate.setup import EngineSetup, read_setup
from pointsman.core.errors import InputError, wrong_value
from pointsman.core.files import read_file
from pointsman.workload.workload import Floats, Ints

REQUESTS_FILE = "requests.jsonl"
META_FILE = "meta.json"
GAUGES_FILE = "timeseries.csv"

_TIMES = ("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts")


class _Line(msgspec.Struct, frozen=True, gc=False):
    """One request as it is recorded; times in s, what else a line has is not used."""

    input_toks: int
    output_toks: int
    queued_ts: float
    scheduled_ts: float
    first_token_ts: float
    last_token_ts: float
    request_id: str | int | None = None


@dataclass(frozen=True, eq=False)
class Times:
    """When each request came to the engine and what became of it, in ms from the first arrival."""

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

    def rows(self, chosen: slice) -> Times:
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
    """A run, its requests in the order of arrival."""

    folder: Path
    setup: EngineSetup
    prompt_tokens: Ints
    times: Times
    gauges: Gauges | None

    def __len__(self) -> int:
        return int(self.prompt_tokens.shape[0])

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
    setup = read_setup(folder / META_FILE)
    lines = _read_lines(folder / REQUESTS_FILE)
    _check_capacity(folder, setup, lines)
    path = folder / GAUGES_FILE
    return _recording(folder, setup, lines, read_gauges(path) if path.exists() else None)


def _recording(
    folder: Path, setup: EngineSetup, lines: list[_Line], gauges: Gauges | None
) -> Recording:
    lines = sorted(lines, key=lambda line: line.queued_ts)
    start = lines[0].queued_ts
    arrival_ms, scheduled_ms, first_token_ms, finish_ms = (
        np.array([getattr(line, name) - start for line in lines]) * 1e3 for name in _TIMES
    )
    output_tokens = np.array([line.output_toks for line in lines], dtype=np.int32)
    return Recording(
        folder=folder,
        setup=setup,
        prompt_tokens=np.array([line.input_toks for line in lines], dtype=np.int32),
        times=Times(arrival_ms, scheduled_ms, first_token_ms, finish_ms, output_tokens),
        gauges=gauges,
    )


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
