"""What each policy holds as a JSON document, and what tables and documents share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pointsman.comparison.load_bench import SUBJECT, TAIL_REFERENCE, Asked, CellResult
from pointsman.comparison.load_verdict import Standing, best_peer, standing, summary
from pointsman.core.percentiles import PERCENTILE_METHOD
from pointsman.policies.catalogue import OURS, PEERS
from pointsman.report.document import head
from pointsman.sim.batching_state import ENGINE_MODEL

BENCH_SCHEMA = "pointsman.policies-bench/1"
_MS_PER_HOUR = 3_600_000.0


@dataclass(frozen=True, slots=True)
class BenchReport:
    """All cells, and what was asked of them."""

    asked: Asked
    cells: tuple[CellResult, ...]

    @property
    def standings(self) -> list[Standing]:
        """Of the cells in which our rule and a peer were run."""
        tolerance_ratio = self.asked.target.tolerance_ratio
        found = [standing(cell, tolerance_ratio) for cell in self.cells]
        return [each for each in found if each is not None]


def whose(text: str) -> str:
    """Whose rule a policy is: ``ours``, a ``peer``'s as published, or ``yours``."""
    if text in PEERS:
        return "peer"
    return "ours" if text.partition(":")[0] in OURS else "yours"


def effort_of(report: BenchReport) -> tuple[int, float]:
    """How many simulations were run, and how many hours they simulated."""
    searches = [search for cell in report.cells for search in cell.searches]
    tails = [cell.tail.simulated_ms for cell in report.cells if cell.tail is not None]
    hours = sum(search.simulated_hours for search in searches) + sum(tails) / _MS_PER_HOUR
    return sum(search.simulations for search in searches) + len(tails), hours


def bench_document(report: BenchReport) -> dict[str, Any]:
    """What was asked, every cell with every policy, the standings and their summary."""
    asked = report.asked
    simulations, hours = effort_of(report)
    return {
        **head(BENCH_SCHEMA),
        "percentile_method": PERCENTILE_METHOD,
        "model": ENGINE_MODEL,
        "objectives": asdict(asked.objectives),
        "attainment_fraction": asked.target.attainment_fraction,
        "tolerance_ratio": asked.target.tolerance_ratio,
        "holding": None if asked.holding is None else asdict(asked.holding),
        "seed": asked.seed,
        "simulations": simulations,
        "simulated_hours": hours,
        "cells": [_cell_document(cell) for cell in report.cells],
        "standings": [_standing_document(each) for each in report.standings],
        "summary": _summary_document(report.standings),
    }


def _cell_document(cell: CellResult) -> dict[str, Any]:
    return {
        "trace": cell.trace,
        "fleet": cell.fleet.name,
        "replicas": cell.fleet.replicas,
        "slow_replicas": cell.fleet.slow,
        "signals": asdict(cell.fleet.signals),
        "requests": cell.requests,
        "rounds": cell.rounds,
        "rate_rps": cell.rate_rps,
        "policies": [
            {
                **{"policy": text, "whose": whose(text), **asdict(held)},
                "requests_per_s": held.load_ratio * cell.rate_rps,
            }
            for text, held in cell.held.items()
        ],
        "best_peer": best_peer(cell),
        "with_holding": None if cell.with_holding is None else asdict(cell.with_holding),
        "subject_at_reference_load": None if cell.tail is None else asdict(cell.tail),
    }


def _standing_document(each: Standing) -> dict[str, Any]:
    return {
        "trace": each.cell.trace,
        "fleet": each.cell.fleet.name,
        "best_peer": each.best_peer,
        "load_ratio": each.load_ratio,
        "verdict": each.verdict,
        "worst_ttft_ratio": each.worst_ttft_ratio,
    }


def _summary_document(standings: Sequence[Standing]) -> dict[str, Any] | None:
    if not standings:
        return None
    total = summary(standings)
    return {
        "subject": SUBJECT,
        "tail_reference": TAIL_REFERENCE,
        "wins": total.wins,
        "ties": total.ties,
        "losses": total.losses,
        "geometric_mean_ratio": total.geometric_mean_ratio,
        "worst": None if total.worst is None else _standing_document(total.worst),
        "geometric_mean_worst_ttft_ratio": total.geometric_mean_worst_ttft_ratio,
    }
