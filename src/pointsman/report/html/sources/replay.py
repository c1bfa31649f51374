"""Choices of a decision log made again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from pointsman.metrics.reasons import ReasonsOverTime, reasons_over_time
from pointsman.report.html.result import MEASURED, AnswerTable, Column, Result, Run
from pointsman.report.html.sources.decoding import AtLeastOne, decoded
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


class _Documents(msgspec.Struct, frozen=True):
    replays: AtLeastOne[_Document]
    simulation: dict[str, Any] | None = None


def replay_result(document: Any, label: str) -> Result:
    """A ``pointsman.replay/1`` document, with its simulation where it has one."""
    facts = decoded(document, _Document, label)
    return _with_simulation(_result((facts,), label), facts.simulation)


def replays_result(document: Any, label: str) -> Result:
    """A ``pointsman.replays/1`` document: several policies on one log."""
    facts = decoded(document, _Documents, label)
    return _with_simulation(_result(facts.replays, label), facts.simulation)


def _result(replays: tuple[_Document, ...], label: str) -> Result:
    is_one = len(replays) == 1
    return Result(
        label=label,
        kind="replay",
        verdict="\n".join(map(_verdict, replays)),
        tables=tuple(table for each in replays for table in _tables(each, is_one)),
        basis=_basis(replays[0]),
        warnings=tuple(dict.fromkeys(text for each in replays for text in _warnings(each))),
        runs=tuple(_run(each, is_one) for each in replays),
    )


def _with_simulation(result: Result, simulation: dict[str, Any] | None) -> Result:
    if simulation is None:
        return result
    simulated = fleet_result(simulation, result.label)
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


def _tables(facts: _Document, is_one: bool) -> tuple[AnswerTable, ...]:
    if not facts.differences:
        return ()
    shown = facts.differences[:SHOWN_DIFFERENCES]
    count = len(facts.differences)
    of = "" if is_one else f" with {facts.replayed_policy}"
    title = f"The first {len(shown):,} of {count:,} choices that differ{of}; the JSON has all"
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


def _run(facts: _Document, is_one: bool) -> Run:
    other = f"{facts.replayed_policy} in place of {facts.recorded_policy}"
    return Run(
        name=facts.recorded_policy if is_one else other,
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
