"""Replicas over time in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from pointsman.comparison.over_time import OverTime
from pointsman.report.table import number, percent


def over_time_sentence(name: str, over_time: OverTime) -> str:
    """When and where a policy had most requests waiting, and the fullest cache."""
    return (
        f"{name} over time, every {number(over_time.step_ms / 1000)} s:"
        f" {_most_waiting(over_time)}, {_fullest(over_time)}"
    )


def _most_waiting(over_time: OverTime) -> str:
    most, place = _first_peak(over_time, [each.waiting for each in over_time.replicas])
    return f"{number(most)} waiting at most ({place})" if most else "nobody waiting"


def _fullest(over_time: OverTime) -> str:
    most, place = _first_peak(over_time, [each.kv_used_fraction for each in over_time.replicas])
    return f"{percent(most)} of a cache used at most ({place})" if most else "no cache used"


def _first_peak(over_time: OverTime, columns: Sequence[Sequence[float]]) -> tuple[float, str]:
    """The largest value, and the replica and time that had it first."""
    most = max(map(max, columns))
    sample, replica = min(
        (column.index(most), r) for r, column in enumerate(columns) if most in column
    )
    return most, f"replica {replica} at {number(sample * over_time.step_ms / 1000)} s"
