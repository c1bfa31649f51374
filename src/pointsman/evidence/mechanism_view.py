"""A mechanism run as a decision sees it: each strategy's slowest rank, in every repeat.

Rows come in three forms: one a strategy with its repeats in it (ours), one a strategy and repeat,
or one a rank (older files: ``rank``, ``request_cost_units``, ``elapsed_ms``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]

_UNITS = ("request_cost_units_per_rank", "request_cost_units")
_ELAPSED = ("rank_elapsed_ms", "elapsed_ms")
_MAKESPAN = "max_rank_makespan_ms"


@dataclass(frozen=True, slots=True)
class StrategyRuns:
    """``units``: of each rank; ``makespans_ms``: of the slowest rank, a value a repeat."""

    strategy: str
    units: tuple[float, ...]
    makespans_ms: tuple[float, ...]


def strategies_of(rows: list[Row]) -> tuple[StrategyRuns, ...]:
    """What the rows say, in the order in which strategies first appear; they have been checked."""
    names = list(dict.fromkeys(str(row["strategy"]) for row in rows))
    return tuple(
        _runs_of(name, [row for row in rows if str(row["strategy"]) == name]) for name in names
    )


def _runs_of(name: str, rows: list[Row]) -> StrategyRuns:
    if "rank" in rows[0]:
        return _of_ranks(name, rows)
    makespans = [
        float(repeat[_MAKESPAN]) for row in rows for repeat in (row.get("repeats") or [row])
    ]
    return StrategyRuns(name, tuple(map(float, rows[0][_UNITS[0]])), tuple(makespans))


def _of_ranks(name: str, rows: list[Row]) -> StrategyRuns:
    """The k-th row of every rank is the k-th repeat."""
    ranks: dict[Any, list[Row]] = {}
    for row in rows:
        ranks.setdefault(row["rank"], []).append(row)
    units = [float(_scalar(each[0], _UNITS)) for each in ranks.values()]
    times = [[float(_scalar(row, _ELAPSED)) for row in each] for each in ranks.values()]
    return StrategyRuns(name, tuple(units), tuple(map(max, zip(*times, strict=False))))


def _scalar(row: Row, names: tuple[str, ...]) -> Any:
    value = next(row[name] for name in names if name in row)
    return value[row["rank"]] if isinstance(value, list) else value


def missing_of_row(row: Any) -> list[tuple[str, str]]:
    """What a row lacks, as (field, what is wanted); empty if it says enough."""
    if not isinstance(row, dict):
        return [("row", "an object")]
    lacking = [] if isinstance(row.get("strategy"), str) else [("strategy", "a string")]
    if "rank" in row:
        if not isinstance(row["rank"], int | str):
            lacking.append(("rank", "a number or a name"))
        return lacking + [
            (names[1], "a number >= 0")
            for names in (_UNITS, _ELAPSED)
            if not any(_is_number(_rank_value(row, name)) for name in names)
        ]
    lacking += [
        (name, "a list of numbers >= 0, one a rank")
        for name in (_UNITS[0], _ELAPSED[0])
        if not _is_list_of_numbers(row.get(name))
    ]
    return (
        lacking
        + [
            (name, "a number >= 0")
            for name in (_MAKESPAN, "throughput_requests_per_s_proxy")
            if not _is_number(row.get(name))
        ]
        + [
            ("repeats", f"a list of objects with {_MAKESPAN}, or none")
            for each in (row.get("repeats"),)
            if each is not None and not _are_repeats(each)
        ]
    )


def _are_repeats(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, dict) and _is_number(each.get(_MAKESPAN)) for each in value
    )


def _is_list_of_numbers(values: Any) -> bool:
    return isinstance(values, list) and bool(values) and all(map(_is_number, values))


def _rank_value(row: Row, name: str) -> Any:
    value, rank = row.get(name), row["rank"]
    if isinstance(value, list) and isinstance(rank, int) and 0 <= rank < len(value):
        return value[rank]
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
