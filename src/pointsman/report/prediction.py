"""Predictions held against measurements, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterator

from pointsman.bench.prediction.ranking import Agreement
from pointsman.bench.prediction.report import FigureError, GroupReport, PredictionReport
from pointsman.evidence.folder import pretty
from pointsman.report.table import number, percent, text_table, wrapped

_HEADINGS = ("metric", "predicted", "measured", "error", "interval", "inside")
_STAGE_HEADINGS = ("stage", "predicted", "measured", "off, ms")
_DIGITS = 4


def prediction_text(report: PredictionReport, form: str) -> str:
    """The report as ``table`` or ``json``."""
    if form == "json":
        return pretty(report).decode()
    return "\n".join([*(_group(each) for each in report.groups), _ending(report)])


def _group(group: GroupReport) -> str:
    policy = "" if group.policy is None else f", {group.policy}"
    fitted = " (the costs are from it: no prediction)" if group.is_fitted else ""
    figures = [_figure(each) for each in group.figures if each.predicted is not None]
    stages = [
        (
            each.name.removesuffix("_ms"),
            _value(each.predicted_ms),
            _value(each.measured_ms),
            "-" if each.off_ms is None else f"{each.off_ms:+,.3g}",
        )
        for each in group.stages
    ]
    text = f"{group.group}{policy}{fitted}\n{text_table(_HEADINGS, figures)}"
    text += f"{text_table(_STAGE_HEADINGS, stages)}{_cached(group)}"
    return text + "".join(wrapped(f"- {sentence}.") for sentence in group.sentences)


def _figure(figure: FigureError) -> tuple[str, ...]:
    interval = "-"
    if figure.low is not None and figure.high is not None:
        interval = f"{_value(figure.low)} to {_value(figure.high)}"
    return (
        figure.name,
        _value(figure.predicted),
        _value(figure.measured),
        percent(figure.error),
        interval,
        _inside(figure),
    )


def _inside(figure: FigureError) -> str:
    """Where the interval goes below nothing, which no metric does, anything is inside."""
    if figure.is_inside is None:
        return "-"
    if not figure.is_inside:
        return "no"
    return "too wide" if figure.low is not None and figure.low < 0.0 else "yes"


def _value(value: float | None) -> str:
    return "-" if value is None else number(value, _DIGITS)


def _cached(group: GroupReport) -> str:
    ours, theirs = group.predicted_cached_fraction, group.measured_cached_fraction
    return f"cached of the prompt tokens: predicted {percent(ours)}, measured {percent(theirs)}\n"


def _ending(report: PredictionReport) -> str:
    lines = [
        *_order(report),
        *(f"{name} is not compared: {why}." for name, why in report.not_measured.items()),
    ]
    return "".join(wrapped(line) for line in lines)


def _order(report: PredictionReport) -> Iterator[str]:
    whole = report.in_order
    yield f"Order: {_counts(whole)}."
    for name, each in report.ranking.items():
        if each.counted:
            wrong = ", ".join(f"{pair.lower} < {pair.higher}" for pair in each.wrong)
            missed = f"; measured, and not predicted: {wrong}" if wrong else ""
            yield f"  {name}: {each.right} of {each.counted}{missed}"


def _counts(found: Agreement) -> str:
    left_out = f"{found.overlapping} overlap and {found.without_interval} have no interval"
    if not found.counted:
        return f"no pair of groups has measured intervals apart ({left_out})"
    return (
        f"of {found.counted} pairs of groups and metrics whose measured intervals do not overlap,"
        f" {found.right} were predicted in the right order ({left_out})"
    )
