"""A calibration: a recorded run beside the simulated one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from pointsman.report.html.result import AnswerTable, Column, Figure, Prediction, Result
from pointsman.report.html.sources.decoding import decoded
from pointsman.report.html.views.quantities import TITLES

_COLUMNS = (
    Column("requests"),
    Column("stage"),
    Column("figure"),
    Column("recorded ms"),
    Column("simulated ms"),
    Column("error", percent=True),
)


class _Sides(msgspec.Struct, frozen=True):
    recorded: float
    simulated: float


_OfQuantity = Annotated[dict[str, _Sides], msgspec.Meta(min_length=1)]
_Figures = dict[str, _OfQuantity]


class _Document(msgspec.Struct, frozen=True):
    recording: str
    n: int
    fitted: int
    figures: Annotated[_Figures, msgspec.Meta(min_length=1)]
    figures_not_fitted: _Figures | None
    repeats: tuple[str, ...] = ()


def calibration_result(document: Any, label: str) -> Result:
    """A ``pointsman.calibration/1`` document."""
    facts = decoded(document, _Document, label)
    predictions = tuple(_predictions(facts))
    worst = max(predictions, key=_size)
    return Result(
        label=label,
        kind="calibration",
        verdict=(
            f"Over {worst.group} the simulated run is farthest from the recorded one in the"
            f" {worst.figure} of {worst.stage}: {worst.predicted:,.4g} ms against"
            f" {worst.measured.value:,.4g} ms ({worst.error_fraction or 0.0:+.1%})."
        ),
        tables=(AnswerTable("All figures", _COLUMNS, tuple(map(_row, predictions))),),
        basis=(
            ("Requests", f"{facts.n:,}, of which the first {facts.fitted:,} were fitted"),
            ("Origin", f"measured: the recorded run {facts.recording}; beside it simulated"),
            ("Interval", f"none; {len(facts.repeats)} further recorded runs"),
        ),
        predictions=predictions,
    )


def _predictions(facts: _Document) -> Iterator[Prediction]:
    parts = {
        "all requests": facts.figures,
        "requests not fitted": facts.figures_not_fitted or {},
    }
    for group, figures in parts.items():
        for quantity, sides in figures.items():
            for name, each in sides.items():
                measured = Figure(each.recorded)
                stage = TITLES.get(quantity, quantity)
                yield Prediction(group, stage, name, each.simulated, measured)


def _size(each: Prediction) -> float:
    return abs(each.error_fraction or 0.0)


def _row(each: Prediction) -> tuple[str | float | None, ...]:
    measured, error = each.measured.value, each.error_fraction
    return (each.group, each.stage, each.figure, measured, each.predicted, error)
