"""What a replay found, as a table, as JSON and as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, astuple, fields
from typing import Any

from pointsman.comparison.fleets import FleetComparison
from pointsman.replay.replay import Difference, Replay
from pointsman.report.document import REPLAY_SCHEMA, REPLAYS_SCHEMA, head, text_of
from pointsman.report.fleet_comparison import fleet_comparison_text
from pointsman.report.fleet_document import fleet_comparison_document
from pointsman.report.table import csv_text, number, text_table
from pointsman.workload.reading import ReadOptions

SHOWN_DIFFERENCES = 20
_CHANGED = "the policy's file has changed since the log was written"
_SIMULATED = (
    "\nEach choice above was made in the situation that was recorded. What the other policy would"
    " have led to,\nsimulated from the first request on:\n\n"
)
_HEADINGS = ("choice", "at ms", "request", "recorded", "replayed")


def replay_text(replay: Replay, form: str, effect: FleetComparison | None = None) -> str:
    """The replay as ``table`` (the first differences) or ``json`` or ``csv`` (all of them).

    ``effect``: what the other policy would have led to, simulated; csv does not hold it.
    """
    if form == "json":
        return text_of(replay_document(replay, effect))
    if form == "csv":
        names = [field.name for field in fields(Difference)]
        return csv_text(names, [astuple(item) for item in replay.differences])
    if effect is None:
        return _table(replay)
    return _table(replay) + _SIMULATED + fleet_comparison_text(effect, ReadOptions(), form)


def replays_text(
    replays: Sequence[Replay], form: str, effect: FleetComparison | None = None
) -> str:
    """Several policies on one log, one after the other as ``replay_text`` has each.

    As json each has its document in ``replays``, as csv its rows with its name before them.
    """
    if len(replays) == 1:
        return replay_text(replays[0], form, effect)
    if form == "json":
        return text_of(replays_document(replays, effect))
    if form == "csv":
        names = ["policy", *(field.name for field in fields(Difference))]
        rows = [
            (replay.replayed_policy, *astuple(item))
            for replay in replays
            for item in replay.differences
        ]
        return csv_text(names, rows)
    text = "\n".join(map(_table, replays))
    if effect is None:
        return text
    simulated = _SIMULATED.replace("the other policy", "the other policies")
    return text + simulated + fleet_comparison_text(effect, ReadOptions(), form)


def replays_document(replays: Sequence[Replay], effect: FleetComparison | None) -> dict[str, Any]:
    """The document of one policy, or of several on one log."""
    if len(replays) == 1:
        return replay_document(replays[0], effect)
    each = {"replays": [replay_document(replay, None) for replay in replays]}
    return {**head(REPLAYS_SCHEMA), **each, **_simulation(effect)}


def replay_document(replay: Replay, effect: FleetComparison | None) -> dict[str, Any]:
    """All that was found, and the simulation where there is one."""
    facts = {**asdict(replay), "agreeing": replay.agreeing}
    return {**head(REPLAY_SCHEMA), **facts, **_simulation(effect)}


def _simulation(effect: FleetComparison | None) -> dict[str, Any]:
    if effect is None:
        return {}
    return {"simulation": fleet_comparison_document(effect, ReadOptions())}


def _table(replay: Replay) -> str:
    lines = [
        f"recorded: {replay.recorded_policy}",
        f"replayed: {replay.replayed_policy}",
        *([_CHANGED] if replay.policy_changed else []),
        f"choices that agree: {number(replay.agreeing)} of {number(replay.choices)}",
    ]
    if replay.unfinished:
        lines.append(f"choices without an outcome: {number(replay.unfinished)}")
    if replay.earlier_outcomes:
        lines.append(f"outcomes of requests sent before: {number(replay.earlier_outcomes)}")
    if replay.missing_choices:
        lines.append(f"choices that are in no file given: {number(replay.missing_choices)}")
    if replay.truncated_lines:
        lines.append("the last line was cut off, and is left out")
    text = "".join(f"{line}\n" for line in lines)
    if replay.differences:
        rows = map(_row, replay.differences[:SHOWN_DIFFERENCES])
        text += "\n" + text_table(_HEADINGS, rows, left_columns=len(_HEADINGS))
    hidden = len(replay.differences) - SHOWN_DIFFERENCES
    if hidden > 0:
        text += f"... and {number(hidden)} more; --format json lists all\n"
    return text


def _row(item: Difference) -> tuple[str, ...]:
    return (
        str(item.sequence),
        f"{item.time_ms:.1f}",
        item.request_id,
        f"{item.recorded_replica} ({item.recorded_reason})",
        f"{item.replayed_replica} ({item.replayed_reason})",
    )
