"""Groups as they were predicted before they ran, and as they were measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pointsman.bench.prediction.report import GroupReport, PredictionReport
from pointsman.report.html.result import AnswerTable, Column, Figure, Prediction, Result
from pointsman.report.html.sources.decoding import decoded

SCHEMA = "pointsman.prediction_report/1"
_FIGURES = {
    "ttft_ms": ("TTFT", "mean"),
    "tpot_ms": ("TPOT", "mean"),
    "e2e_ms": ("E2E", "mean"),
    "p95_ms": ("E2E", "p95"),
    "p99_ms": ("E2E", "p99"),
    "queue_wait_ms": ("queue wait", "mean"),
    "kv_handoff_ms": ("hand-off", "mean"),
    "throughput_tokens_per_s": ("throughput", "tokens/s"),
}
_COLUMNS = (
    Column("group"),
    Column("policy"),
    Column("figure"),
    Column("predicted"),
    Column("measured"),
    Column("from"),
    Column("to"),
    Column("error", percent=True),
)


def prediction_result(document: Any, label: str) -> Result:
    """A ``pointsman.prediction_report/1`` document."""
    facts = decoded(document, PredictionReport, label)
    order = facts.in_order
    return Result(
        label=label,
        kind="prediction against measurement",
        verdict=(
            f"Of {order.counted:,} pairs of figures that the measurement tells apart,"
            f" {order.right:,} were predicted in the right order."
        ),
        tables=(_table(facts),),
        basis=(
            ("Origin", "predicted: simulated before the groups ran; beside it measured"),
            ("Interval", "of what was measured, over repeats"),
        ),
        warnings=tuple(
            f"{name} was predicted and not measured: {why}"
            for name, why in facts.not_measured.items()
        ),
        predictions=tuple(_predictions(facts.groups)),
    )


def _table(facts: PredictionReport) -> AnswerTable:
    notes = tuple(f"{g.group}: {text}." for g in facts.groups for text in g.sentences)
    return AnswerTable("Predicted and measured", _COLUMNS, tuple(_rows(facts)), notes)


def _predictions(groups: tuple[GroupReport, ...]) -> Iterator[Prediction]:
    """Stages first, then the figures that both sides have."""
    for group in groups:
        for stage in group.stages:
            if stage.predicted_ms is not None and stage.measured_ms is not None:
                yield Prediction(
                    *(group.group, "time", "mean"),
                    stage.predicted_ms,
                    Figure(stage.measured_ms),
                    stage=stage.name.removesuffix("_ms"),
                    stated_error=stage.error,
                )
        for each in group.figures:
            if each.predicted is not None and each.measured is not None:
                measured = Figure(each.measured, each.low, each.high)
                yield Prediction(
                    group.group,
                    *_FIGURES.get(each.name, (each.name, each.unit)),
                    each.predicted,
                    measured,
                    is_time=each.unit == "ms",
                    stated_error=each.error,
                )


def _rows(facts: PredictionReport) -> Iterator[tuple[str | float | None, ...]]:
    for group in facts.groups:
        for each in group.figures:
            bounds = (each.low, each.high)
            figure = (each.name, each.predicted, each.measured, *bounds, each.error)
            yield (group.group, group.policy or "-", *figure)
