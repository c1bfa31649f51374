"""What each policy holds, as tables and CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from pointsman.comparison import bench_fleets
from pointsman.comparison.held_load import AtLoad, HeldLoad
from pointsman.comparison.load_bench import SUBJECT, TAIL_REFERENCE, CellResult
from pointsman.comparison.load_verdict import Standing, best_peer, summary
from pointsman.metrics.goodput import Objectives
from pointsman.report.document import text_of
from pointsman.report.load_bench_document import (
    BenchReport,
    bench_document,
    effort_of,
    whose,
)
from pointsman.report.table import csv_text, number, percent, text_table, wrapped
from pointsman.sim.batching_state import ENGINE_MODEL

BEST_PEER_MARK = "*"
NOTHING = "none"
_NO_MARK = " " * len(BEST_PEER_MARK)
_CELL_HEADINGS = (
    *("trace", "fleet", "best peer", "holds", "ours", "ratio", ""),
    *("P99 TTFT s", "worst TTFT s", "P99 TPOT ms", "cached", "worst TTFT /"),
)
CSV_HEADINGS = (
    *("trace", "fleet", "policy", "whose", "load_ratio", "load_rps", "best_peer"),
    *("goodput_fraction", "p99_ttft_ms", "worst_ttft_ms", "p99_tpot_ms", "cached_token_fraction"),
    *("simulated_ms", "simulations"),
)


def bench_text(report: BenchReport, form: str) -> str:
    """The report as ``table``, ``json`` or ``csv``."""
    if form == "json":
        return text_of(bench_document(report))
    if form == "csv":
        return csv_text(CSV_HEADINGS, _csv_rows(report))
    return _tables(report)


def _tables(report: BenchReport) -> str:
    fleets = list(dict.fromkeys(cell.fleet for cell in report.cells))
    parts = [_assumptions(report)]
    for fleet in fleets:
        cells = [cell for cell in report.cells if cell.fleet == fleet]
        parts.append(f"{fleet.title}\n{_loads(report.asked.policies, cells)}")
    standings = report.standings
    if standings:
        parts += [_standings(standings), _sentences(standings)]
    return "\n".join([*parts, _effort(report)])


def _assumptions(report: BenchReport) -> str:
    target, fast, slow = report.asked.target, bench_fleets.FAST_COSTS, bench_fleets.SLOW_COSTS
    return wrapped(
        f"Load held at {target.attainment_fraction:.0%} goodput ({_limits(target.objectives)}), in"
        f" multiples of each trace's own rate, told apart to {target.tolerance_ratio - 1:.1%};"
        f" {BEST_PEER_MARK} the best of the other projects' rules. Replicas: {_costs(fast)},"
        f" {bench_fleets.FAST_KV_TOKENS:,} KV tokens; slower ones: {_costs(slow)},"
        f" {bench_fleets.SLOW_KV_TOKENS:,}; {bench_fleets.MAX_NUM_SEQS} requests and"
        f" {bench_fleets.MAX_NUM_BATCHED_TOKENS:,} tokens an iteration. Engine model"
        f" {ENGINE_MODEL}; no engine was run."
    )


def _limits(objectives: Objectives) -> str:
    words = [
        f"{name.removesuffix('_ms').upper()} <= {number(limit, 6)} ms"
        for name, limit in asdict(objectives).items()
        if limit is not None
    ]
    return ", ".join(words)


def _costs(costs: Any) -> str:
    return " / ".join(f"{value:g}" for value in msgspec.structs.astuple(costs)) + " ms"


def _loads(policies: Sequence[str], cells: Sequence[CellResult]) -> str:
    rows = [(text, *(_load(cell, text) for cell in cells)) for text in policies]
    if any(cell.with_holding for cell in cells):
        holding = [_figure(cell.with_holding) + _NO_MARK for cell in cells]
        rows.append((f"{SUBJECT} and holding", *holding))
    rows.append(("requests/s at 1", *(number(cell.rate_rps) + _NO_MARK for cell in cells)))
    headings = ("policy", *(cell.trace + _NO_MARK for cell in cells))
    return text_table(headings, rows)


def _load(cell: CellResult, text: str) -> str:
    mark = BEST_PEER_MARK if text == best_peer(cell) else _NO_MARK
    return _figure(cell.held[text]) + mark


def _figure(held: HeldLoad | None) -> str:
    if held is None:
        return "-"
    return _ratio(held.load_ratio) if held.load_ratio else NOTHING


def _ratio(value: float) -> str:
    """Three significant digits, zeros too, for loads stand below each other."""
    return f"{value:#.3g}" if value < 100 else number(value)


def _standings(standings: Sequence[Standing]) -> str:
    with_holding = any(each.cell.with_holding for each in standings)
    headings = (*_CELL_HEADINGS, *(("with holding",) if with_holding else ()))
    rows = [(*_row(each), *((_held_back(each),) if with_holding else ())) for each in standings]
    title = f"{SUBJECT} against the best peer, and its tail at the load that it holds\n"
    return title + text_table(headings, rows, left_columns=3)


def _row(each: Standing) -> tuple[str, ...]:
    held = each.cell.held
    at = held[SUBJECT].at
    return (
        each.cell.trace,
        each.cell.fleet.name,
        each.best_peer,
        _figure(held[each.best_peer]),
        _figure(held[SUBJECT]),
        "-" if each.load_ratio is None else f"{each.load_ratio:.3f}",
        each.verdict,
        *_tail_cells(at),
        "-" if each.worst_ttft_ratio is None else f"{each.worst_ttft_ratio:.2f}",
    )


def _tail_cells(at: AtLoad | None) -> tuple[str, ...]:
    if at is None:
        return ("-",) * 4
    return (
        "-" if at.p99_ttft_ms is None else number(at.p99_ttft_ms / 1000),
        "-" if at.worst_ttft_ms is None else number(at.worst_ttft_ms / 1000),
        "-" if at.p99_tpot_ms is None else number(at.p99_tpot_ms),
        percent(at.cached_token_fraction),
    )


def _held_back(each: Standing) -> str:
    held, ours = each.cell.with_holding, each.cell.held[SUBJECT].load_ratio
    if held is None or not ours:
        return "-"
    return f"x {held.load_ratio / ours:.3f}"


def _sentences(standings: Sequence[Standing]) -> str:
    total = summary(standings)
    text = (
        f"{SUBJECT} against the best peer of each cell: {total.wins} wins, {total.ties} ties,"
        f" {total.losses} losses"
    )
    if total.geometric_mean_ratio is not None and total.worst is not None:
        worst = total.worst
        text += (
            f"; geometric mean {total.geometric_mean_ratio:.3f}, at the worst"
            f" {worst.load_ratio:.3f} ({worst.cell.trace} on {worst.cell.fleet.name}, against"
            f" {worst.best_peer})"
        )
    if total.geometric_mean_worst_ttft_ratio is not None:
        text += (
            f". Worst TTFT over that of {TAIL_REFERENCE} at the load that the latter holds:"
            f" geometric mean {total.geometric_mean_worst_ttft_ratio:.2f}"
        )
    return wrapped(f"{text}.")


def _effort(report: BenchReport) -> str:
    simulations, hours = effort_of(report)
    text = f"{simulations:,} simulations of {number(hours)} simulated hours"
    lasting = [each for cell in report.cells if (each := cell.least_minutes) is not None]
    if lasting:
        text += f"; the shortest run at a load held lasts {number(min(lasting))} min"
    return wrapped(f"{text}.")


def _csv_rows(report: BenchReport) -> list[list[object]]:
    return [
        [
            cell.trace,
            cell.fleet.name,
            text,
            whose(text),
            held.load_ratio,
            held.load_ratio * cell.rate_rps,
            text == best_peer(cell),
            *_csv_figures(held.at),
            held.simulations,
        ]
        for cell in report.cells
        for text, held in cell.held.items()
    ]


def _csv_figures(at: AtLoad | None) -> list[object]:
    if at is None:
        return [None] * 6
    return list(asdict(at).values())[1:]
