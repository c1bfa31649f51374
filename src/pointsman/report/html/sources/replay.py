"""Choices of a decision log made again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from pointsman.metrics.reasons import ReasonsOverTime, reasons_over_time
from pointsman.report.html.result import MEASURED, AnswerTable, Column, Result, Run
from pointsman.report.html.sources.decoding import decoded
from pointsman.report.html.sources.fleet import fleet_result

SHOWN_DIFFERENCES = 20
_COLUMNS = (
    Column("choice"),
    Column("at ms"),
    Column("request"),
    Column("recorded"),
    Column("replayed"),
)


class _Difference(msgspec.Struct, frozen=True):
    sequence: int
    request_id: str
    time_ms: float
    recorded_replica: str
    recorded_reason: str
    replayed_replica: str
    replayed_reason: str


class _Document(msgspec.Struct, frozen=True):
    recorded_policy: str
    replayed_policy: str
    choices: int
    agreeing: int
    differences: tuple[_Difference, ...]
    unfinished: int
    truncated_lines: int
    policy_changed: bool
    simulation: dict[str, Any] | None = None


def replay_result(document: Any, label: str) -> Result:
    """A ``pointsman.replay/1`` document, with its simulation where it has one."""
    facts = decoded(document, _Document, label)
    simulated = None if facts.simulation is None else fleet_result(facts.simulation, label)
    result = Result(
        label=label,
        kind="replay",
        verdict=_verdict(facts),
        tables=_tables(facts),
        basis=_basis(facts),
        warnings=_warnings(facts),
        runs=(_run(facts),),
    )
    if simulated is None:
        return result
    return replace(
        result,
        verdict=f"{result.verdict} Simulated from the first request on: {simulated.verdict}",
        tables=(*result.tables, *simulated.tables),
        basis=(*result.basis, *(("Simulated: " + t, w) for t, w in simulated.basis)),
        warnings=(*result.warnings, *simulated.warnings),
        runs=(*result.runs, *simulated.runs),
    )


def _verdict(facts: _Document) -> str:
    return (
        f"{facts.agreeing:,} of {facts.choices:,} choices of {facts.recorded_policy} come out the"
        f" same with {facts.replayed_policy}, each in the situation that was recorded."
    )


def _tables(facts: _Document) -> tuple[AnswerTable, ...]:
    if not facts.differences:
        return ()
    shown = facts.differences[:SHOWN_DIFFERENCES]
    count = len(facts.differences)
    title = f"The first {len(shown):,} of {count:,} choices that differ; the JSON has all"
    rows = tuple(
        (
            each.sequence,
            each.time_ms,
            each.request_id,
            f"{each.recorded_replica} ({each.recorded_reason})",
            f"{each.replayed_replica} ({each.replayed_reason})",
        )
        for each in shown
    )
    return (AnswerTable(title, _COLUMNS, rows),)


def _basis(facts: _Document) -> tuple[tuple[str, str], ...]:
    unfinished = f", {facts.unfinished:,} of them without an outcome" if facts.unfinished else ""
    return (
        ("Choices", f"{facts.choices:,}{unfinished}"),
        ("Origin", "measured: the log of a live router; the choices are computed again"),
        ("Interval", "none: choices agree or differ"),
    )


def _warnings(facts: _Document) -> tuple[str, ...]:
    found = []
    if facts.policy_changed:
        found.append("the policy's file has changed since the log was written")
    if facts.truncated_lines:
        found.append("the last line was cut off, and is left out")
    return tuple(found)


def _run(facts: _Document) -> Run:
    return Run(
        name=facts.recorded_policy,
        origin=MEASURED,
        policy=facts.recorded_policy,
        differing=_differing(facts.differences),
    )


def _differing(differences: tuple[_Difference, ...]) -> ReasonsOverTime | None:
    """By the reason that was recorded."""
    if not differences:
        return None
    names = tuple(dict.fromkeys(each.recorded_reason for each in differences))
    times = np.array([each.time_ms for each in differences])
    reasons = np.array([names.index(each.recorded_reason) for each in differences])
    return reasons_over_time(times, reasons, names)
