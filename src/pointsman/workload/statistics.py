"""What is in a trace: traffic, lengths, sessions, and what a cache could hold of the prompts."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pointsman.core.errors import InputError
from pointsman.core.percentiles import nearest_rank
from pointsman.workload.steps import arrival_step_ms
from pointsman.workload.workload import Floats, Ints, Workload

_WINDOW_MS = 60_000.0


class Summary(msgspec.Struct, frozen=True):
    """Mean, extremes and nearest-rank percentiles of the rows that have a value."""

    rows: int
    mean: float
    min: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


class PrefixReuse(msgspec.Struct, frozen=True):
    """What one cache that never forgets would hit, the rows served in order of arrival.

    Only whole blocks count, and only leading ones; a block is in the cache once an earlier row
    has it.
    """

    block_size_tokens: int | None  # None where prefixes are keys of any length
    distinct_blocks: int
    hit_ceiling_fraction: float | None  # of all prompt tokens; None where some length is unknown
    requests_with_hit_fraction: float


class TraceStatistics(msgspec.Struct, frozen=True):
    """The statistics of a workload. Rates and times are None where too few rows define them."""

    file: str
    format: str
    sha256: str | None
    requests: int
    skipped_lines: int
    failures_left_out: int
    out_of_order_rows: int
    span_ms: float
    mean_rate_rps: float | None  # gaps between arrivals over the span
    busiest_minute_rps: float | None  # most arrivals in any 60 s, over 60 s
    interarrival_cv: float | None  # standard deviation over mean of the gaps; 1 for Poisson
    arrival_step_ms: float | None  # arrivals are recorded in steps of this
    prompt_tokens: Summary | None
    output_tokens: Summary | None
    service_ms: Summary | None
    sessions: int
    turns: Summary | None  # requests a session
    adapters: int
    prefix: PrefixReuse | None  # None where no row has a prefix


def statistics_of(workload: Workload) -> TraceStatistics:
    """Measure a workload; it has at least one request, else InputError."""
    if len(workload) == 0:
        raise InputError("workload: no requests; expected at least one")
    source = workload.source
    arrival_ms = workload.arrival_ms
    turns = np.bincount(workload.session[workload.session >= 0])
    return TraceStatistics(
        file=source.name,
        format=source.format,
        sha256=source.sha256,
        requests=len(workload),
        skipped_lines=source.skipped_lines,
        failures_left_out=source.failures_left_out,
        out_of_order_rows=source.out_of_order,
        span_ms=workload.span_ms,
        mean_rate_rps=_mean_rate_rps(arrival_ms),
        busiest_minute_rps=_busiest_minute_rps(arrival_ms),
        interarrival_cv=_interarrival_cv(arrival_ms),
        arrival_step_ms=arrival_step_ms(arrival_ms),
        prompt_tokens=_summary(workload.prompt_tokens[workload.prompt_tokens >= 0]),
        output_tokens=_summary(workload.output_tokens[workload.output_tokens >= 0]),
        service_ms=_summary(workload.service_ms[~np.isnan(workload.service_ms)]),
        sessions=int(np.count_nonzero(turns)),
        turns=_summary(turns[turns > 0]),
        adapters=int(np.unique(workload.adapter[workload.adapter >= 0]).size),
        prefix=_prefix_reuse(workload),
    )


def hit_blocks(workload: Workload) -> Ints:
    """How many leading blocks of each row an earlier row has."""
    starts, blocks = workload.chain_start, workload.chain_blocks
    lengths = workload.chain_lengths
    row = np.repeat(np.arange(len(workload)), lengths)
    first_row = np.full(workload.block_count, len(workload), dtype=np.int64)
    # Where a block repeats, the last assignment stays: going backwards, its first row.
    first_row[blocks[::-1]] = row[::-1]
    place = np.arange(blocks.size) - np.repeat(starts[:-1], lengths)
    # The first block that misses ends the hit; without one the whole chain hits.
    end = np.where(first_row[blocks] < row, lengths[row], place)
    hits = np.zeros(len(workload), dtype=np.int32)
    chained = lengths > 0
    if blocks.size:
        hits[chained] = np.minimum.reduceat(end, starts[:-1][chained])
    return hits


def _prefix_reuse(workload: Workload) -> PrefixReuse | None:
    if workload.chain_blocks.size == 0:
        return None
    hits = hit_blocks(workload)
    lengths = workload.chain_lengths
    keyed = workload.block_size_tokens == 1 and int(lengths.max()) <= 1
    hit_tokens = np.where(
        hits == lengths, workload.prefix_tokens, hits * workload.block_size_tokens
    )
    known = bool(np.all(workload.prompt_tokens >= 0))
    prompt_tokens = int(workload.prompt_tokens.sum(dtype=np.int64))
    return PrefixReuse(
        block_size_tokens=None if keyed else workload.block_size_tokens,
        distinct_blocks=int(np.unique(workload.chain_blocks).size),
        hit_ceiling_fraction=(
            int(hit_tokens.sum(dtype=np.int64)) / prompt_tokens if known and prompt_tokens else None
        ),
        requests_with_hit_fraction=float(np.count_nonzero(hits) / len(workload)),
    )


def _summary(values: NDArray[Any]) -> Summary | None:
    if values.size == 0:
        return None
    ordered = np.sort(values)
    return Summary(
        rows=int(values.size),
        mean=float(values.mean(dtype=np.float64)),
        min=float(ordered[0]),
        p50=nearest_rank(ordered, 0.50),
        p90=nearest_rank(ordered, 0.90),
        p95=nearest_rank(ordered, 0.95),
        p99=nearest_rank(ordered, 0.99),
        max=float(ordered[-1]),
    )


def _mean_rate_rps(arrival_ms: Floats) -> float | None:
    span_ms = float(arrival_ms[-1] - arrival_ms[0])
    return (arrival_ms.size - 1) / span_ms * 1000.0 if span_ms > 0 else None


def _busiest_minute_rps(arrival_ms: Floats) -> float | None:
    if arrival_ms[-1] - arrival_ms[0] < _WINDOW_MS:
        return None
    ends = np.searchsorted(arrival_ms, arrival_ms + _WINDOW_MS, side="left")
    return float((ends - np.arange(arrival_ms.size)).max() / _WINDOW_MS * 1000.0)


def _interarrival_cv(arrival_ms: Floats) -> float | None:
    gaps = np.diff(arrival_ms)
    if gaps.size < 2 or gaps.mean() <= 0:
        return None
    return float(gaps.std() / gaps.mean())
