"""A comparison on a fleet that batches as tables and as CSV."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from pointsman.comparison.differences import GOODPUT, Difference
from pointsman.comparison.fleet_advice import advise_on_fleet
from pointsman.comparison.fleets import FleetComparison, FleetResult
from pointsman.metrics.goodput import Objectives
from pointsman.metrics.latency import Spread
from pointsman.report.document import text_of
from pointsman.report.fleet_document import fleet_comparison_document
from pointsman.report.locality_audit import audit_sentence
from pointsman.report.over_time import over_time_sentence
from pointsman.report.surroundings import surroundings
from pointsman.report.table import csv_text, number, percent, text_table, wrapped
from pointsman.sim.batching import Split
from pointsman.workload.reading import ReadOptions

_SPREAD = ("mean", "p50", "p95", "p99", "worst")
_ANSWERS = (("", 1), ("goodput", 2), ("TTFT ms", 5), ("queue wait ms", 3))
_TOKENS = (("", 1), ("TPOT ms", 5), ("E2E ms", 5), ("ITL ms", 1))
_WORK = (("", 1), ("requests", 3), ("prompt tokens", 2), ("", 1), ("skew", 3))
_RATES = (("", 1), ("per s", 3), ("", 1), ("KV use", 2))


def fleet_comparison_text(comparison: FleetComparison, reading: ReadOptions, form: str) -> str:
    """The comparison as ``table``, ``json`` or ``csv``."""
    if form == "json":
        return text_of(fleet_comparison_document(comparison, reading))
    if form == "csv":
        return _csv(comparison)
    return _tables(comparison)


def _csv(comparison: FleetComparison) -> str:
    rows = [_csv_row(result) for result in comparison.results]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return csv_text(names, [[row.get(name) for name in names] for row in rows])


def _csv_row(result: FleetResult) -> dict[str, Any]:
    """Every figure under the path that it has in the document, parts joined by a dot."""
    metrics = asdict(result.metrics)
    for name in ("skews", "replicas"):
        del metrics[name]
    row = {"policy": result.policy.label, **_flat(metrics)}
    for pool, skews in result.skews.items():
        row |= _flat({"skews": {pool: asdict(skews)}})
    for each in result.to_baseline:
        bounds = {} if each.interval is None else asdict(each.interval)
        for name in ("estimate", "low", "high"):
            row[f"to_baseline.{each.figure}.{name}"] = bounds.get(name)
        row[f"to_baseline.{each.figure}.verdict"] = each.verdict
    return row


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _tables(comparison: FleetComparison) -> str:
    results = comparison.results
    headings = ("fraction", "per s", *_SPREAD, "p50", "p95", "p99")
    parts = [
        _assumptions(comparison),
        text_table(("policy", *headings), map(_answers_row, results), groups=_ANSWERS),
        text_table(
            ("policy", *_SPREAD, *_SPREAD, "p99"), map(_tokens_row, results), groups=_TOKENS
        ),
        text_table(
            (
                *("policy", "finished", "failed", "rejected"),
                *("cached", "recomputed", "preempted"),
                *("requests", "tokens", "busy"),
            ),
            map(_work_row, results),
            groups=_WORK,
        ),
        text_table(
            ("policy", "requests", "tokens", "a GPU", "busy", "mean", "peak"),
            map(_rates_row, results),
            groups=_RATES,
        ),
    ]
    if len(results) > 1:
        parts.append(_differences(comparison))
    parts += ["".join(_reasons(comparison))] if any(_reasons(comparison)) else []
    parts += [wrapped(f"Warning: {warning}.") for warning in comparison.warnings]
    return "\n".join([*parts, wrapped(advise_on_fleet(comparison).sentence)])


def _assumptions(comparison: FleetComparison) -> str:
    workload, described, fleet = comparison.workload, comparison.description, comparison.fleet
    lines = [
        f"{workload.source.name}: {len(workload):,} requests over"
        f" {number(workload.span_ms / 1000)} s ({workload.source.format}) on"
        f" {described.replicas:,} replicas that batch, {described.gpus:,} GPUs"
    ]
    first = 0
    for group in described.ordered:
        engine = fleet.engines[first]
        lines.append(
            f"{group.name}: {engine.kv_blocks:,} KV blocks of {engine.block_size} tokens,"
            f" max_num_seqs {engine.max_num_seqs:,}, max_num_batched_tokens"
            f" {engine.max_num_batched_tokens:,}{', by priority' if engine.by_priority else ''}"
        )
        first += group.count
    lines += [_link(fleet.split)] if fleet.split is not None else []
    lines += list(surroundings(described.conditions))
    if comparison.trial.objectives is not None:
        lines.append(f"objectives: {_objectives(comparison.trial.objectives)}")
    labels = [each.policy.label for each in comparison.results if each.policy.parameters]
    lines += [f"parameters: {', '.join(labels)}"] if labels else []
    return "".join(map(wrapped, lines))


def _link(split: Split) -> str:
    shared = "shared by transfers" if split.contention else "a link for each transfer"
    return (
        f"hand-off: {number(split.kv_bytes_per_token, digits=6)} bytes a token at"
        f" {number(split.bytes_per_ms / 1e6)} GB/s, {shared}, and {number(split.base_ms)} ms"
    )


def _objectives(objectives: Objectives) -> str:
    given = asdict(objectives).items()
    return ", ".join(
        f"{name.removesuffix('_ms')} {number(value)} ms" for name, value in given if value
    )


def _answers_row(result: FleetResult) -> tuple[str, ...]:
    m = result.metrics
    met = ("-", "-")
    if m.goodput is not None:
        met = (percent(m.goodput.fraction), number(m.goodput.requests_per_s))
    waits = (m.queue_wait_ms.p50, m.queue_wait_ms.p95, m.queue_wait_ms.p99)
    return (result.name, *met, *_spread(m.ttft_ms), *map(_shown, waits))


def _tokens_row(result: FleetResult) -> tuple[str, ...]:
    m = result.metrics
    itl = None if m.itl_ms is None else m.itl_ms.p99
    return (result.name, *_spread(m.tpot_ms), *_spread(m.e2e_ms), _shown(itl))


def _work_row(result: FleetResult) -> tuple[str, ...]:
    m = result.metrics
    return (
        result.name,
        *(number(m.statuses[status]) for status in ("finished", "failed", "rejected")),
        percent(m.cached_token_fraction),
        percent(m.recomputed_token_fraction),
        number(m.preemptions),
        *_skews(result),
    )


def _rates_row(result: FleetResult) -> tuple[str, ...]:
    m = result.metrics
    means = [each.kv_used_mean_fraction for each in result.replicas]
    peaks = [each.kv_used_peak_fraction for each in result.replicas]
    return (
        result.name,
        number(m.requests_per_s),
        number(m.output_tokens_per_s),
        number(m.output_tokens_per_s_per_gpu),
        percent(m.utilisation),
        percent(float(np.mean([each for each in means if each is not None]))),
        percent(max(each for each in peaks if each is not None)),
    )


def _skews(result: FleetResult) -> tuple[str, ...]:
    """Those of a split fleet as prefill/decode."""
    pools = [(each.requests, each.tokens, each.busy) for each in result.skews.values()]
    return tuple("/".join(map(_shown, figures)) for figures in zip(*pools, strict=True))


def _differences(comparison: FleetComparison) -> str:
    rows = [
        (result.name, each.figure, *_bounds(each), each.verdict)
        for result in comparison.results
        for each in result.to_baseline
    ]
    (base,) = (each for each in comparison.results if each.policy == comparison.baseline)
    title = wrapped(f"Differences to {base.name}, on the same requests:")
    headings = ("policy", "figure", "difference", "95% from", "to", "bears error", "verdict")
    return title + text_table(headings, rows, left_columns=2)


def _bounds(difference: Difference) -> tuple[str, ...]:
    interval = difference.interval
    if interval is None:
        return ("-", "-", "-", "-")
    values = (interval.estimate, interval.low, interval.high)
    shown = (
        [f"{100 * value:+.2f} pp" for value in values]
        if difference.figure == GOODPUT.name
        else [_signed(value) for value in values]
    )
    return (*shown, percent(difference.bearable_error_fraction))


def _signed(value: float) -> str:
    return f"+{number(value)}" if value > 0 else number(value)


def _spread(spread: Spread) -> tuple[str, ...]:
    return tuple(_shown(getattr(spread, name)) for name in _SPREAD)


def _shown(value: float | None) -> str:
    return "-" if value is None else number(value)


def _reasons(comparison: FleetComparison) -> list[str]:
    lines = []
    for result in comparison.results:
        if len(result.reasons) > 1:
            counts = (f"{reason} {number(count)}" for reason, count in result.reasons.items())
            lines.append(wrapped(f"reasons of {result.name}: {', '.join(counts)}"))
        if result.audit is not None:
            lines.append(wrapped(audit_sentence(result.name, result.audit)))
        if result.over_time is not None:
            lines.append(wrapped(over_time_sentence(result.name, result.over_time)))
    return lines
