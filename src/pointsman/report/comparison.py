"""A comparison as a table and as CSV."""

from __future__ import annotations

from dataclasses import asdict

from pointsman.comparison.advice import advise
from pointsman.comparison.policies import Comparison
from pointsman.costs.stages import PD_DISAGGREGATED, StageCosts
from pointsman.report.document import comparison_document, text_of
from pointsman.report.locality_audit import audit_sentence
from pointsman.report.table import cell, csv_text, number, percent, text_table, wrapped
from pointsman.sim.fifo import FifoFleet
from pointsman.workload.reading import ReadOptions

GROUPS = (
    ("", 1),
    ("queue wait ms", 3),
    ("latency ms", 3),
    ("cached", 2),
    ("skew", 2),
    ("requests", 1),
)
HEADINGS = ("policy", *("p50", "p95", "p99") * 2, "hits", "tokens", "load", "busy", "per s")


def comparison_text(comparison: Comparison, reading: ReadOptions, form: str) -> str:
    """The comparison as ``table``, ``json`` or ``csv``."""
    if form == "json":
        return text_of(comparison_document(comparison, reading))
    if form == "csv":
        return _csv(comparison)
    return _table(comparison)


def _csv(comparison: Comparison) -> str:
    rows = [
        {"policy": result.policy.label, **asdict(result.metrics)} for result in comparison.results
    ]
    return csv_text(list(rows[0]), [list(row.values()) for row in rows])


def _table(comparison: Comparison) -> str:
    rows = [
        (
            result.policy.label,
            *map(number, (m.p50_queue_wait_ms, m.p95_queue_wait_ms, m.p99_queue_wait_ms)),
            *map(number, (m.p50_latency_ms, m.p95_latency_ms, m.p99_latency_ms)),
            percent(m.cache_hit_rate),
            percent(m.cached_token_fraction),
            number(m.load_skew_ratio),
            number(m.busy_skew_ratio),
            number(m.throughput_requests_per_s),
        )
        for result in comparison.results
        for m in (result.metrics,)
    ]
    parts = [_assumptions(comparison), text_table(HEADINGS, rows, groups=GROUPS)]
    return "\n".join([*parts, *_reasons(comparison), wrapped(advise(comparison).sentence)])


def _assumptions(comparison: Comparison) -> str:
    workload, fleet = comparison.workload, comparison.fleet
    source = workload.source
    return wrapped(
        f"{source.name}: {len(workload):,} requests over {number(workload.span_ms / 1000)} s"
        f" ({source.format}) on {fleet.replicas:,} single-server replicas"
    ) + wrapped(costs_line(fleet))


def costs_line(fleet: FifoFleet) -> str:
    """The constants that shape a result: those of every request, and whatever is set otherwise."""
    costs = fleet.costs
    shown = {"prefill_ms_per_token", "decode_ms_per_token"}
    if costs.tp_degree != 1:
        shown.add("comm_ms_per_token")
    if costs.pp_stages != 1:
        shown.add("pipeline_penalty_ms")
    if costs.serving_mode == PD_DISAGGREGATED:
        shown |= {"kv_bytes_per_token", "handoff_base_ms", "handoff_bytes_per_ms"}
    default = StageCosts()
    named = [
        f"{name} {cell(name, getattr(costs, name), digits=6)}"
        for name in StageCosts.__struct_fields__
        if name in shown or getattr(costs, name) != getattr(default, name)
    ]
    named.append(f"cache_hit_speedup {number(fleet.cache_hit_speedup, digits=6)}")
    return f"costs: {', '.join(named)}; others default"


def _reasons(comparison: Comparison) -> list[str]:
    lines = [
        wrapped(
            f"reasons of {result.policy.label}: {_counts(result.reasons)}"
            + ("" if result.audit is None else f". {audit_sentence(result.audit)}")
        )
        for result in comparison.results
        if len(result.reasons) > 1
    ]
    return ["".join(lines)] if lines else []


def _counts(reasons: dict[str, int]) -> str:
    return ", ".join(f"{reason} {number(count)}" for reason, count in reasons.items())
