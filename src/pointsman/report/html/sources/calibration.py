"""A calibration: a recorded run beside the simulated one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from pointsman.report.html.quantities import TITLES
from pointsman.report.html.result import AnswerTable, Cell, Column, Figure, Prediction, Result
from pointsman.report.html.sources.decoding import decoded

_COLUMNS = (
    Column("requests"),
    Column("quantity"),
    Column("figure"),
    Column("recorded ms"),
    Column("simulated ms"),
    Column("error", percent=True),
)
_BESIDE_NOISE = (Column("noise", percent=True), Column("error is"))
_WITHIN = {True: "within it", False: "beyond it", None: "-"}


class _Sides(msgspec.Struct, frozen=True):
    recorded: float
    simulated: float


_OfQuantity = Annotated[dict[str, _Sides], msgspec.Meta(min_length=1)]
_Figures = dict[str, _OfQuantity]
_Fractions = dict[str, dict[str, float | None]]
_Within = dict[str, dict[str, bool | None]]


class _Document(msgspec.Struct, frozen=True):
    recording: str
    n: int
    fitted: int
    figures: Annotated[_Figures, msgspec.Meta(min_length=1)]
    figures_not_fitted: _Figures | None
    errors: _Fractions | None = None
    errors_not_fitted: _Fractions | None = None
    noise: _Fractions | None = None
    noise_not_fitted: _Fractions | None = None
    within_noise: _Within | None = None
    within_noise_not_fitted: _Within | None = None
    repeats: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Line:
    """A figure beside the noise: how much recorded runs of the same requests differ in it."""

    prediction: Prediction
    noise: float | None
    is_within: bool | None


def calibration_result(document: Any, label: str) -> Result:
    """A ``pointsman.calibration/1`` document."""
    facts = decoded(document, _Document, label)
    lines = tuple(_lines(facts))
    columns = (*_COLUMNS, *(_BESIDE_NOISE if facts.repeats else ()))
    rows = tuple(_row(line)[: len(columns)] for line in lines)
    return Result(
        label=label,
        kind="calibration",
        verdict=_verdict(lines),
        tables=(AnswerTable("All figures", columns, rows),),
        basis=(
            ("Requests", f"{facts.n:,}, of which the first {facts.fitted:,} were fitted"),
            ("Origin", f"measured: the recorded run {facts.recording}; beside it simulated"),
            ("Interval", f"none; {len(facts.repeats)} further recorded runs"),
        ),
        predictions=tuple(line.prediction for line in lines),
    )


def _lines(facts: _Document) -> Iterator[_Line]:
    parts = {
        "all requests": (facts.figures, facts.errors, facts.noise, facts.within_noise),
        "requests not fitted": (
            facts.figures_not_fitted,
            *(facts.errors_not_fitted, facts.noise_not_fitted, facts.within_noise_not_fitted),
        ),
    }
    for group, (figures, errors, noise, within) in parts.items():
        for quantity, sides in (figures or {}).items():
            for name, each in sides.items():
                prediction = Prediction(
                    *(group, TITLES.get(quantity, quantity), name),
                    each.simulated,
                    Figure(each.recorded),
                    stated_error=(errors or {}).get(quantity, {}).get(name),
                )
                yield _Line(
                    prediction,
                    (noise or {}).get(quantity, {}).get(name),
                    (within or {}).get(quantity, {}).get(name),
                )


def _verdict(lines: tuple[_Line, ...]) -> str:
    """The largest error that is known: of what was recorded as 0 there is none."""
    known = [(abs(error), line) for line in lines if (error := _error(line)) is not None]
    if not known:
        return "Every figure was recorded as 0: how far the simulated run is off cannot be said."
    _, worst = max(known, key=lambda each: each[0])
    each, noise = worst.prediction, ""
    if worst.is_within is not None:
        noise = f", {'within' if worst.is_within else 'beyond'} what recorded runs differ by"
    return (
        f"Over {each.group} the simulated run is farthest from the recorded one in the"
        f" {each.figure} of {each.quantity}: {each.predicted:,.4g} ms against"
        f" {each.measured.value:,.4g} ms ({_error(worst):+.1%}{noise})."
    )


def _error(line: _Line) -> float | None:
    return line.prediction.error_fraction


def _row(line: _Line) -> tuple[Cell, ...]:
    each = line.prediction
    figures = (each.measured.value, each.predicted, each.error_fraction)
    return (
        *(each.group, each.quantity, each.figure, *figures),
        *(line.noise, _WITHIN[line.is_within]),
    )
