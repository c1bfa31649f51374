"""The requests that arrive, as columns.

    index             0         1         2
    arrival_ms        0.0       4.5       9.0        ascending
    chain_start       0    2         2          5    one longer than the others
    chain_blocks      [7, 9]    []        [7, 9, 4]  = chain_blocks[chain_start[i]:chain_start[i+1]]

A prefix is a chain of blocks: equal block ids mean equal text **up to and including** that block.
A single prefix key is a chain of one block. Names are interned to dense integers, -1 for none.
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


@dataclass(frozen=True, slots=True)
class Source:
    """Where a workload came from, for the record."""

    name: str = "memory"
    format: str = "columns"
    sha256: str | None = None
    skipped_lines: int = 0
    out_of_order: int = 0  # rows that arrived before a row above them in the file


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


def workload_of_columns(  # noqa: PLR0913
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
    names: Names | None = None,
    source: Source | None = None,
) -> Workload:
    """Check columns once and make a Workload of them.

    Columns are array-likes of one length, in ascending order of ``arrival_ms``. Every row needs
    ``service_ms`` (NaN where absent) or both token counts (-1 where absent). Block ids are dense
    integers from 0. ``prefix_tokens`` defaults to one token per row that has a chain and no
    prompt length, else to whole blocks, at most the prompt.
    Raises InputError naming the column and the first row that is wrong.
    """
    arrival = np.ascontiguousarray(arrival_ms, dtype=np.float64)
    if arrival.ndim != 1:
        raise wrong_value("workload", "arrival_ms", arrival.shape, "one dimension")
    n = arrival.shape[0]
    starts = _column("chain_start", chain_start, n + 1, np.int64, 0)
    blocks = np.ascontiguousarray([] if chain_blocks is None else chain_blocks, dtype=np.int32)
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
        names=names or Names(),
        source=source or Source(),
    )
    _check(workload)
    return workload


def _column(name: str, values: Any, length: int, dtype: Any, default: float) -> NDArray[Any]:
    if values is None:
        return np.full(length, default, dtype=dtype)
    column = np.ascontiguousarray(values, dtype=dtype)
    if column.shape != (length,):
        raise wrong_value("workload", f"shape of {name}", column.shape, str((length,)))
    return column


def _whole_blocks(lengths: Longs, prompt: Ints, block_size_tokens: int) -> Longs:
    covered = np.minimum(lengths * block_size_tokens, np.maximum(prompt, 0))
    return np.where(prompt == MISSING, np.minimum(lengths, 1), covered)


def _check(workload: Workload) -> None:
    arrival = workload.arrival_ms
    _refuse("arrival_ms", arrival, ~(np.isfinite(arrival) & (arrival >= 0)), "a finite time >= 0")
    late = np.flatnonzero(np.diff(arrival) < 0)
    if late.size:
        row = int(late[0]) + 1
        raise wrong_value(
            f"workload row {row}", "arrival_ms", float(arrival[row]), "ascending arrival times"
        )
    service = workload.service_ms
    given = ~np.isnan(service)
    _refuse("service_ms", service, given & ~((service >= 0) & (service < np.inf)), "a time >= 0")
    for name in ("prompt_tokens", "output_tokens", "session", "adapter"):
        column = getattr(workload, name)
        _refuse(name, column, column < MISSING, "an integer >= 0, or -1 for none")
    unpriced = ~given & ((workload.prompt_tokens < 0) | (workload.output_tokens < 0))
    _refuse("service_ms", service, unpriced, "a time, or prompt_tokens and output_tokens")
    prefix = workload.prefix_tokens
    beyond = (workload.prompt_tokens >= 0) & (prefix > workload.prompt_tokens)
    _refuse("prefix_tokens", prefix, (prefix < 0) | beyond, "an integer in 0..prompt_tokens")
    _check_chains(workload)
    chainless = np.diff(workload.chain_start) == 0
    _refuse("prefix_tokens", prefix, chainless & (prefix > 0), "0 where there is no chain")


def _check_chains(workload: Workload) -> None:
    starts, blocks = workload.chain_start, workload.chain_blocks
    if starts[0] != 0 or starts[-1] != blocks.shape[0] or np.any(np.diff(starts) < 0):
        raise InputError(
            "workload: chain_start does not partition chain_blocks;"
            " expected ascending offsets from 0 to its length"
        )
    _refuse("chain_blocks", blocks, blocks < 0, "an integer >= 0")
    if workload.block_size_tokens < 1:
        raise wrong_value(
            "workload", "block_size_tokens", workload.block_size_tokens, "an integer >= 1"
        )


def _refuse(name: str, column: NDArray[Any], wrong: NDArray[np.bool_], wanted: str) -> None:
    rows = np.flatnonzero(wrong)
    if rows.size:
        raise wrong_value(f"workload row {rows[0]}", name, column[rows[0]].item(), wanted)
