"""A comparison as a table and as CSV."""

from __future__ import annotations

from dataclasses import asdict

import msgspec

from pointsman.comparison.advice import advise
from pointsman.comparison.policies import Comparison
from pointsman.report.document import comparison_document, text_of
from pointsman.report.table import csv_text, ms, percent, text_table


def comparison_text(comparison: Comparison, form: str) -> str:
    """The comparison as ``table``, ``json`` or ``csv``."""
    if form == "json":
        return text_of(comparison_document(comparison))
    if form == "csv":
        return _csv(comparison)
    return _table(comparison)


def _csv(comparison: Comparison) -> str:
    rows = [
        {"policy": result.policy.label, **asdict(result.metrics)} for result in comparison.results
    ]
    return csv_text(list(rows[0]), [list(row.values()) for row in rows])


def _table(comparison: Comparison) -> str:
    headings = (
        "policy",
        "wait p50",
        "p95",
        "p99 ms",
        "latency p50",
        "p95",
        "p99 ms",
        "requests/s",
        "hits",
        "cached",
        "skew",
        "busy skew",
    )
    rows = [
        (
            result.policy.label,
            *map(ms, (m.p50_queue_wait_ms, m.p95_queue_wait_ms, m.p99_queue_wait_ms)),
            *map(ms, (m.p50_latency_ms, m.p95_latency_ms, m.p99_latency_ms)),
            f"{m.throughput_requests_per_s:,.3f}",
            percent(m.cache_hit_rate),
            percent(m.cached_token_fraction),
            f"{m.load_skew_ratio:.3f}",
            f"{m.busy_skew_ratio:.3f}",
        )
        for result in comparison.results
        for m in (result.metrics,)
    ]
    parts = [_assumptions(comparison), text_table(headings, rows), _reasons(comparison)]
    return "\n".join([*parts, advise(comparison).sentence + "\n"])


def _assumptions(comparison: Comparison) -> str:
    workload, fleet = comparison.workload, comparison.fleet
    source = workload.source
    lines = [
        f"{source.name}: {len(workload):,} requests over {workload.span_ms / 1000:,.1f} s"
        f" ({source.format}) on {fleet.replicas} single-server replicas"
    ]
    costs = msgspec.to_builtins(fleet.costs)
    named = ", ".join(
        f"{name} {value if isinstance(value, str) else format(value, 'g')}"
        for name, value in costs.items()
    )
    lines.append(f"costs: {named}, cache_hit_speedup {fleet.cache_hit_speedup:g}")
    return "".join(f"{line}\n" for line in lines)


def _reasons(comparison: Comparison) -> str:
    lines = [
        f"{result.policy.label}: "
        + ", ".join(f"{reason} {count:,}" for reason, count in result.reasons.items())
        for result in comparison.results
        if len(result.reasons) > 1
    ]
    return "".join(f"reasons of {line}\n" for line in lines)
