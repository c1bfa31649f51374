"""What is in a trace, as a table, as JSON and as CSV."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from pointsman.report.document import TRACE_SCHEMA, head, reading_document, text_of
from pointsman.report.table import cell, csv_text, number, percent, text_columns, text_table
from pointsman.workload.reading import ReadOptions
from pointsman.workload.statistics import PrefixReuse, Summary, TraceStatistics

_SUMMARIES = ("prompt_tokens", "output_tokens", "service_ms", "turns")
_COLUMNS = ("mean", "min", "p50", "p90", "p95", "p99", "max")


def trace_text(statistics: TraceStatistics, reading: ReadOptions, form: str) -> str:
    """The statistics as ``table``, ``json`` or ``csv``."""
    if form == "table":
        return _table(statistics)
    facts: dict[str, Any] = msgspec.to_builtins(statistics)
    if form == "csv":
        return csv_text(("name", "value"), _flat(facts))
    return text_of({**head(TRACE_SCHEMA), **facts, "options": reading_document(reading)})


def _flat(facts: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in facts.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _table(statistics: TraceStatistics) -> str:
    facts = text_columns(_facts(statistics), left_columns=2)
    rows = [
        (name, *(number(getattr(summary, column)) for column in _COLUMNS))
        for name in _SUMMARIES
        for summary in (_summary(statistics, name),)
        if summary is not None
    ]
    return f"{facts}\n{text_table(('', *_COLUMNS), rows)}" if rows else facts


def _summary(statistics: TraceStatistics, name: str) -> Summary | None:
    summary: Summary | None = getattr(statistics, name)
    return summary


def _facts(statistics: TraceStatistics) -> Iterator[tuple[str, str]]:
    """What the table says beside the distributions, as (name, value)."""
    yield "file", f"{statistics.file} ({statistics.format})"
    if statistics.sha256 is not None:
        yield "sha256", cell("sha256", statistics.sha256)
    yield "requests", number(statistics.requests)
    if statistics.skipped_lines:
        yield "bad lines left out", number(statistics.skipped_lines)
    if statistics.failures_left_out:
        yield "failed requests left out", number(statistics.failures_left_out)
    if statistics.out_of_order_rows:
        yield "rows out of order", f"{number(statistics.out_of_order_rows)} (sorted)"
    yield "span", f"{number(statistics.span_ms / 1000)} s"
    if statistics.mean_rate_rps is not None:
        yield "rate", f"{number(statistics.mean_rate_rps)} requests/s"
    if statistics.busiest_minute_rps is not None:
        yield "busiest minute", f"{number(statistics.busiest_minute_rps)} requests/s"
    if statistics.interarrival_cv is not None:
        yield "variation of gaps", f"{number(statistics.interarrival_cv)} (1 is Poisson)"
    if statistics.arrival_step_ms is not None:
        step = f"arrivals are recorded every {number(statistics.arrival_step_ms)} ms"
        yield "steps", f"{step}; --spread-arrivals spreads them"
    if statistics.sessions:
        yield "sessions", number(statistics.sessions)
    if statistics.adapters:
        yield "adapters", number(statistics.adapters)
    if statistics.prefix is not None:
        yield from _prefix_facts(statistics.prefix)


def _prefix_facts(prefix: PrefixReuse) -> Iterator[tuple[str, str]]:
    distinct = number(prefix.distinct_blocks)
    if prefix.block_size_tokens is None:
        yield "prefixes", f"{distinct} keys"
    else:
        yield "prefixes", f"{distinct} full blocks of {number(prefix.block_size_tokens)} tokens"
    if prefix.hit_ceiling_fraction is not None:
        yield "prefix hit ceiling", f"{percent(prefix.hit_ceiling_fraction)} of the prompt tokens"
    yield "requests with a hit", percent(prefix.requests_with_hit_fraction)
