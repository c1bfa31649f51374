"""The requests that arrive, as columns.

    index             0         1         2
    arrival_ms        0.0       4.5       9.0        ascending
    chain_start       0    2         2          5    one longer than the others
    chain_blocks      [7, 9]    []        [7, 9, 4]  = chain_blocks[chain_start[i]:chain_start[i+1]]

A prefix is a chain of blocks: equal block ids mean equal text **up to and including** that block.
A single prefix key is a chain of one block. All blocks of a chain but the last are whole, so part
of a chain never covers more tokens than all of it. Names are interned to dense integers, -1 for
none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pointsman.core.errors import InputError, wrong_value

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]

MISSING = -1
MAX_TOKENS = 2**31 - 1
MAX_TIME_MS = 1e15  # beyond it a double no longer tells tenths of a ms apart


@dataclass(frozen=True, slots=True)
class Source:
    """Where a workload came from, for the record."""

    name: str = "memory"
    format: str = "columns"
    sha256: str | None = None
    skipped_lines: int = 0
    failures_left_out: int = 0  # requests that the trace records as failed
    out_of_order: int = 0  # rows that arrived before a row above them in the file
    # Row and line from which on each row stands a line below the one before it; empty where rows
    # stand in another order than in the file, or in none.
    lines: tuple[tuple[int, int], ...] = ()

    def place(self, row: int) -> str:
        """Where a row stands: the file and its line, else its number in order of arrival."""
        if not self.lines:
            return f"{self.name}: workload row {row}"
        first, line = max(run for run in self.lines if run[0] <= row)
        return f"{self.name} line {line + row - first}"


@dataclass(frozen=True, slots=True)
class Names:
    """What the dense integers of a workload stand for; None where they stand for themselves.

    ``requests`` is by row, the others by number.
    """

    requests: tuple[str, ...] | None = None
    sessions: tuple[str, ...] | None = None
    adapters: tuple[str, ...] | None = None
    blocks: tuple[str, ...] | None = None

    def request(self, index: int) -> str:
        """The id of the request at a row; its row number where the trace has no ids."""
        return str(index) if self.requests is None else self.requests[index]


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Requests in order of arrival. Build one with ``workload_of_columns`` or a reader."""

    arrival_ms: Floats
    service_ms: Floats  # NaN where the service time is priced from the tokens
    prompt_tokens: Ints  # -1 where unknown
    output_tokens: Ints  # -1 where unknown
    session: Ints
    adapter: Ints
    chain_start: Longs
    chain_blocks: Ints
    prefix_tokens: Ints  # tokens that the whole chain covers; at most prompt_tokens if known
    block_size_tokens: int  # tokens a block of the chains, but for the last one of a chain
    priority: Ints  # the lowest first, on engines that go by it; 0 where none is given
    names: Names = field(default_factory=Names)
    source: Source = field(default_factory=Source)

    def __len__(self) -> int:
        return int(self.arrival_ms.shape[0])

    @property
    def block_count(self) -> int:
        """How many different blocks the chains name."""
        return int(self.chain_blocks.max()) + 1 if self.chain_blocks.size else 0

    @property
    def session_count(self) -> int:
        """How many different sessions there are."""
        return int(self.session.max()) + 1 if self.session.size else 0

    @property
    def chain_lengths(self) -> Longs:
        """Blocks in each request's chain."""
        return np.diff(self.chain_start)

    @property
    def span_ms(self) -> float:
        """From the first arrival to the last; 0 for fewer than two requests."""
        return float(self.arrival_ms[-1] - self.arrival_ms[0]) if len(self) else 0.0

    def chain(self, index: int) -> Ints:
        """The blocks of one request's prompt, the first one first."""
        return self.chain_blocks[self.chain_start[index] : self.chain_start[index + 1]]


def workload_of_columns(  # noqa: PLR0913 - a parameter a column
    arrival_ms: Any,
    *,
    service_ms: Any = None,
    prompt_tokens: Any = None,
    output_tokens: Any = None,
    session: Any = None,
    adapter: Any = None,
    chain_start: Any = None,
    chain_blocks: Any = None,
    prefix_tokens: Any = None,
    block_size_tokens: int = 1,
    priority: Any = None,
    names: Names | None = None,
    source: Source | None = None,
) -> Workload:
    """Check columns once and make a Workload of them.

    Columns are array-likes of one length, in ascending order of ``arrival_ms``. Every row needs
    ``service_ms`` (NaN where absent) or both token counts (-1 where absent). Block ids are dense
    integers from 0. ``prefix_tokens`` defaults to whole blocks, at most the prompt where its
    length is known.
    Raises InputError naming the column and the first row that is wrong.
    """
    arrival = np.ascontiguousarray(arrival_ms, dtype=np.float64)
    if arrival.ndim != 1:
        raise wrong_value("workload", "arrival_ms", arrival.shape, "one dimension")
    n = arrival.shape[0]
    starts = _column("chain_start", chain_start, n + 1, np.int64, 0)
    blocks = _typed("chain_blocks", [] if chain_blocks is None else chain_blocks, np.int32)
    if not 1 <= block_size_tokens <= MAX_TOKENS:
        wanted = f"an integer in 1..{MAX_TOKENS}"
        raise wrong_value("workload", "block_size_tokens", block_size_tokens, wanted)
    prompt = _column("prompt_tokens", prompt_tokens, n, np.int32, MISSING)
    if prefix_tokens is None:
        prefix_tokens = _whole_blocks(np.diff(starts), prompt, block_size_tokens)
    workload = Workload(
        arrival_ms=arrival,
        service_ms=_column("service_ms", service_ms, n, np.float64, np.nan),
        prompt_tokens=prompt,
        output_tokens=_column("output_tokens", output_tokens, n, np.int32, MISSING),
        session=_column("session", session, n, np.int32, MISSING),
        adapter=_column("adapter", adapter, n, np.int32, MISSING),
        chain_start=starts,
        chain_blocks=blocks,
        prefix_tokens=_column("prefix_tokens", prefix_tokens, n, np.int32, 0),
        block_size_tokens=block_size_tokens,
        priority=_column("priority", priority, n, np.int32, 0),
        names=names or Names(),
        source=source or Source(),
    )
    _check(workload)
    return workload


def _column(name: str, values: Any, length: int, dtype: Any, default: float) -> NDArray[Any]:
    if values is None:
        return np.full(length, default, dtype=dtype)
    column = _typed(name, values, dtype)
    if column.shape != (length,):
        raise wrong_value("workload", f"shape of {name}", column.shape, str((length,)))
    return column


def _typed(name: str, values: Any, dtype: Any) -> NDArray[Any]:
    """The values in a column's type; one that it cannot hold is refused, not wrapped round."""
    given = np.asarray(values)
    if dtype in (given.dtype, np.float64):
        return np.ascontiguousarray(given, dtype=dtype)
    with np.errstate(invalid="ignore"):
        column = np.ascontiguousarray(given, dtype=dtype)
    limits = np.iinfo(dtype)
    _refuse(name, given, column != given, f"an integer in {limits.min}..{limits.max}")
    return column


def _whole_blocks(lengths: Longs, prompt: Ints, block_size_tokens: int) -> Longs:
    covered = lengths * block_size_tokens
    return np.where(prompt == MISSING, covered, np.minimum(covered, np.maximum(prompt, 0)))


def _check(workload: Workload) -> None:
    arrival = workload.arrival_ms
    time_wanted = f"a time in ms in 0..{MAX_TIME_MS:g}"
    _refuse("arrival_ms", arrival, ~((arrival >= 0) & (arrival <= MAX_TIME_MS)), time_wanted)
    late = np.flatnonzero(np.diff(arrival) < 0)
    if late.size:
        row = int(late[0]) + 1
        raise wrong_value(
            f"workload row {row}", "arrival_ms", float(arrival[row]), "ascending arrival times"
        )
    service = workload.service_ms
    given = ~np.isnan(service)
    untimely = given & ~((service >= 0) & (service <= MAX_TIME_MS))
    _refuse("service_ms", service, untimely, time_wanted)
    for name in ("prompt_tokens", "output_tokens", "session", "adapter"):
        column = getattr(workload, name)
        _refuse(name, column, column < MISSING, "an integer >= 0, or -1 for none")
    unpriced = ~given & ((workload.prompt_tokens < 0) | (workload.output_tokens < 0))
    _refuse("service_ms", service, unpriced, "a time, or prompt_tokens and output_tokens")
    prefix = workload.prefix_tokens
    beyond = (workload.prompt_tokens >= 0) & (prefix > workload.prompt_tokens)
    _refuse("prefix_tokens", prefix, (prefix < 0) | beyond, "an integer in 0..prompt_tokens")
    _check_chains(workload)
    lengths = workload.chain_lengths
    _refuse("prefix_tokens", prefix, (lengths == 0) & (prefix > 0), "0 where there is no chain")
    before_last = (lengths - 1) * workload.block_size_tokens
    wanted = f"more than the whole blocks of {workload.block_size_tokens} before the last one"
    _refuse("prefix_tokens", prefix, (lengths > 1) & (prefix <= before_last), wanted)


def _check_chains(workload: Workload) -> None:
    starts, blocks = workload.chain_start, workload.chain_blocks
    if starts[0] != 0 or starts[-1] != blocks.shape[0] or np.any(workload.chain_lengths < 0):
        raise InputError(
            "workload: chain_start does not partition chain_blocks;"
            " expected ascending offsets from 0 to its length"
        )
    _refuse("chain_blocks", blocks, blocks < 0, "an integer >= 0")


def _refuse(name: str, column: NDArray[Any], wrong: NDArray[np.bool_], wanted: str) -> None:
    rows = np.flatnonzero(wrong)
    if rows.size:
        raise wrong_value(f"workload row {rows[0]}", name, column[rows[0]].item(), wanted)
