"""How much load fleets hold under each policy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from pointsman.report.html.result import (
    SIMULATED,
    AnswerTable,
    AtLoad,
    Cell,
    Column,
    Figure,
    HeldRate,
    Result,
    Run,
)
from pointsman.report.html.sources.decoding import AtLeastOne, decoded, stated

_FIGURES = ("goodput_fraction", "p99_ttft_ms", "p99_tpot_ms", "cached_token_fraction")
_COLUMNS = (
    Column("traffic"),
    Column("fleet"),
    Column("policy"),
    Column("whose"),
    Column("load held"),
    Column("requests/s"),
    Column("P99 TTFT ms"),
    Column("P99 TPOT ms"),
    Column("cached tokens", percent=True),
)


class _AtLoad(msgspec.Struct, frozen=True):
    load_ratio: float
    goodput_fraction: float
    p99_ttft_ms: float | None
    p99_tpot_ms: float | None
    cached_token_fraction: float | None


class _Held(msgspec.Struct, frozen=True):
    policy: str
    whose: str
    load_ratio: float
    at: _AtLoad | None
    tried: tuple[_AtLoad, ...] = ()
    requests_per_s: float | None = None


class _Cell(msgspec.Struct, frozen=True):
    trace: str
    fleet: str
    requests: int
    rate_rps: float
    policies: AtLeastOne[_Held]

    @property
    def name(self) -> str:
        """The traffic and the fleet."""
        return f"{self.trace} on {self.fleet}"


class _Summary(msgspec.Struct, frozen=True):
    subject: str
    wins: int
    ties: int
    losses: int
    geometric_mean_ratio: float | None


class _Document(msgspec.Struct, frozen=True):
    model: str
    objectives: dict[str, float | None]
    attainment_fraction: float
    tolerance_ratio: float
    seed: int
    simulations: int
    simulated_hours: float
    cells: AtLeastOne[_Cell]
    summary: _Summary | None


def bench_result(document: Any, label: str) -> Result:
    """A ``pointsman.policies-bench/1`` document."""
    facts = decoded(document, _Document, label)
    rows = tuple(row for cell in facts.cells for row in _rows(cell))
    return Result(
        label=label,
        kind="load held by policies",
        verdict=_verdict(facts),
        tables=(AnswerTable("Load held, in multiples of the trace's own rate", _COLUMNS, rows),),
        basis=_basis(facts),
        runs=tuple(run for cell in facts.cells for run in _runs(cell, facts.attainment_fraction)),
    )


def _verdict(facts: _Document) -> str:
    total = facts.summary
    if total is not None:
        text = (
            f"{total.subject} against the best peer of each cell: {total.wins} wins, {total.ties}"
            f" ties, {total.losses} losses"
        )
        mean = total.geometric_mean_ratio
        return f"{text}." if mean is None else f"{text}; geometric mean {mean:.3f}."
    best = [
        (cell.name, max(cell.policies, key=lambda held: held.load_ratio)) for cell in facts.cells
    ]
    listed = [
        f"{held.policy} ({held.load_ratio:.3g} times the rate of {name})" for name, held in best
    ]
    return f"Most load is held by {', '.join(listed)}."


def _basis(facts: _Document) -> tuple[tuple[str, str], ...]:
    limits = facts.objectives.items()
    named = [f"{name.removesuffix('_ms').upper()} {v:g} ms" for name, v in limits if v]
    requests = [cell.requests for cell in facts.cells]
    return (
        ("Requests", f"{min(requests):,} to {max(requests):,} a simulation"),
        (
            "Objectives",
            f"{', '.join(named)}, in {stated(facts.attainment_fraction)} of the requests",
        ),
        ("Origin", f"simulated, engine model {facts.model}; no engine was run"),
        ("Simulations", f"{facts.simulations:,} of {facts.simulated_hours:,.3g} simulated hours"),
        ("Interval", f"none; loads are told apart to {facts.tolerance_ratio - 1:.1%}"),
        ("Seed", str(facts.seed)),
    )


def _rows(cell: _Cell) -> Iterator[tuple[Cell, ...]]:
    for held in cell.policies:
        at = held.at
        yield (
            *(cell.trace, cell.fleet, held.policy, held.whose, held.load_ratio),
            held.requests_per_s,
            *_tails(at),
        )


def _tails(at: _AtLoad | None) -> tuple[float | None, ...]:
    return (None,) * 3 if at is None else (at.p99_ttft_ms, at.p99_tpot_ms, at.cached_token_fraction)


def _runs(cell: _Cell, attainment_fraction: float) -> Iterator[Run]:
    for held in cell.policies:
        yield Run(
            name=held.policy,
            origin=SIMULATED,
            policy=held.policy,
            cell=cell.name,
            held=HeldRate(held.load_ratio, _failed(held, attainment_fraction)),
            loads=tuple(AtLoad(at.load_ratio, _figures(at)) for at in held.tried),
        )


def _failed(held: _Held, attainment_fraction: float) -> float | None:
    """The least load tried above the one held at which too few requests kept all objectives."""
    missed = [
        at.load_ratio
        for at in held.tried
        if at.load_ratio > held.load_ratio and at.goodput_fraction < attainment_fraction
    ]
    return min(missed, default=None)


def _figures(at: _AtLoad) -> dict[str, Figure]:
    values = {name: getattr(at, name) for name in _FIGURES}
    return {name: Figure(value) for name, value in values.items() if value is not None}
