"""What was predicted against what was measured: schema ``pointsman.prediction_report/1``.

A mean TTFT or TPOT that is more than 10 % out is traced to the stage that is most out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from pointsman.bench.prediction.measured_group import MeasuredGroup
from pointsman.bench.prediction.predicted import Predicted
from pointsman.bench.prediction.ranking import Agreement, Ranked, agreement, together
from pointsman.bench.prediction.stages import STAGES, stages_of
from pointsman.core.errors import InputError, unknown_name
from pointsman.evidence.metrics import DEFINITIONS, METRIC_NAMES, MetricName

TOLERANCE = 0.1  # of mean TTFT and TPOT
HIT_TOLERANCE = 0.02  # of all prompt tokens


class FigureError(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of a group. ``error``: what was predicted beyond what was measured, in parts of
    that; None where either is missing or nothing was measured. ``is_inside``: the interval."""

    name: str
    unit: str
    predicted: float | None
    measured: float | None
    low: float | None
    high: float | None
    error: float | None
    is_inside: bool | None
    reason: str | None  # why nothing was predicted


class StageError(msgspec.Struct, frozen=True, kw_only=True):
    """A stage's means; ``off_ms`` is predicted - measured, ``error`` the same in parts of what was
    measured, None of nothing."""

    name: str
    predicted_ms: float | None
    measured_ms: float | None
    off_ms: float | None
    error: float | None = None


class GroupReport(msgspec.Struct, frozen=True, kw_only=True):
    """A group; ``sentences`` say which stage is off, and what was not comparable."""

    group: str
    policy: str | None
    is_fitted: bool
    figures: tuple[FigureError, ...]
    stages: tuple[StageError, ...]
    predicted_cached_fraction: float | None
    measured_cached_fraction: float | None
    sentences: tuple[str, ...]


class PredictionReport(msgspec.Struct, frozen=True, kw_only=True):
    """All groups that were predicted, in that order.

    ``ranking``: of each metric that says what is better. ``in_order``: all of them together.
    """

    schema: Literal["pointsman.prediction_report/1"]
    tolerance: float
    groups: tuple[GroupReport, ...]
    ranking: dict[MetricName, Agreement]
    in_order: Agreement
    not_measured: dict[str, str]  # groups, and why


def against(
    predictions: Sequence[Predicted], measured: Mapping[str, MeasuredGroup]
) -> PredictionReport:
    """Hold predictions against the groups that were measured, by name.

    Raises InputError for no prediction, two of one group, and a measured group that none is of.
    """
    _check_names(predictions, measured)
    failed = {}
    for each in predictions:
        found = measured.get(each.group)
        if found is None or found.failure is not None:
            failed[each.group] = "it did not run" if found is None else found.failure or ""
    both = [(each, measured[each.group]) for each in predictions if each.group not in failed]
    ranking = {
        name: agreement(list(_ranked(name, both)))
        for name in METRIC_NAMES
        if DEFINITIONS[name].better
    }
    return PredictionReport(
        schema="pointsman.prediction_report/1",
        tolerance=TOLERANCE,
        groups=tuple(_group(ours, theirs) for ours, theirs in both),
        ranking=ranking,
        in_order=together(list(ranking.values())),
        not_measured=failed,
    )


def _check_names(predictions: Sequence[Predicted], measured: Mapping[str, MeasuredGroup]) -> None:
    names = [each.group for each in predictions]
    if not names:
        raise InputError("prediction: there is none; expected at least one, of a group")
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"prediction: two are of {name}; expected one a group")
    for name in measured:
        if name not in names:
            raise unknown_name("prediction", "measured group", name, names)


def _ranked(name: MetricName, both: Sequence[tuple[Predicted, MeasuredGroup]]) -> Iterator[Ranked]:
    for ours, theirs in both:
        predicted, bounds = ours.metrics.of(name), theirs.intervals.get(name)
        if predicted is None or theirs.metrics.of(name) is None:
            continue
        low, high = (None, None) if bounds is None else (bounds.low, bounds.high)
        yield Ranked(ours.group, predicted, low, high)


def _group(ours: Predicted, theirs: MeasuredGroup) -> GroupReport:
    stages = tuple(_stages(ours, theirs))
    figures = {name: _figure(name, ours, theirs) for name in METRIC_NAMES}
    return GroupReport(
        group=ours.group,
        policy=ours.policy,
        is_fitted=ours.is_fitted,
        figures=tuple(figures.values()),
        stages=stages,
        predicted_cached_fraction=ours.cached_token_fraction,
        measured_cached_fraction=theirs.cached_token_fraction,
        sentences=(
            *_first_token(figures["ttft_ms"], stages),
            *_tokens(figures["tpot_ms"]),
            *_hits(ours.cached_token_fraction, theirs.cached_token_fraction),
            *ours.remarks,
        ),
    )


def _figure(name: MetricName, ours: Predicted, theirs: MeasuredGroup) -> FigureError:
    predicted, measured = ours.metrics.of(name), theirs.metrics.of(name)
    bounds = theirs.intervals.get(name)
    is_inside = None
    if bounds is not None and predicted is not None:
        is_inside = bounds.low <= predicted <= bounds.high
    return FigureError(
        name=name,
        unit=DEFINITIONS[name].unit,
        predicted=predicted,
        measured=measured,
        low=None if bounds is None else bounds.low,
        high=None if bounds is None else bounds.high,
        error=_error(predicted, measured),
        is_inside=is_inside,
        reason=ours.reasons.get(name),
    )


def _stages(ours: Predicted, theirs: MeasuredGroup) -> Iterator[StageError]:
    found = stages_of(theirs.metrics, theirs.is_split)
    for name in STAGES:
        predicted, measured = ours.stages.of(name), found.of(name)
        off_ms = None if predicted is None or measured is None else predicted - measured
        yield StageError(
            name=name,
            predicted_ms=predicted,
            measured_ms=measured,
            off_ms=off_ms,
            error=_error(predicted, measured),
        )


def _error(predicted: float | None, measured: float | None) -> float | None:
    return predicted / measured - 1.0 if predicted is not None and measured else None


def _first_token(figure: FigureError, stages: Sequence[StageError]) -> Iterator[str]:
    """Which stage before the first token is off, if it is."""
    if figure.error is None or abs(figure.error) <= TOLERANCE:
        return
    parts = [stage for stage in stages if stage.name != "decode_ms"]
    known = {stage.name: stage.off_ms for stage in parts if stage.off_ms is not None}
    if len(known) < len(parts):
        lacking = " and ".join(_word(part.name) for part in parts if part.off_ms is None)
        yield (
            f"{_out(figure)}; which stage is off is not known, for not both sides say what"
            f" {lacking} took"
        )
        return
    worst = max(known, key=lambda name: abs(known[name]))
    told = ", ".join(f"{_word(name)} {off_ms:+,.3g} ms" for name, off_ms in known.items())
    yield f"{_out(figure)}; off is above all the {_word(worst)} ({told})"


def _tokens(figure: FigureError) -> Iterator[str]:
    if figure.error is not None and abs(figure.error) > TOLERANCE:
        yield f"{_out(figure)}; off is the decode: what iterations take, or who is in them"


def _hits(ours: float | None, theirs: float | None) -> Iterator[str]:
    if ours is not None and theirs is not None and abs(ours - theirs) > HIT_TOLERANCE:
        yield (
            f"cache hits are off: {ours:.1%} of the prompt tokens are predicted to be cached, and"
            f" {theirs:.1%} were"
        )


def _out(figure: FigureError) -> str:
    error = figure.error or 0.0
    way = "above" if error > 0 else "below"
    return (
        f"mean {figure.name.removesuffix('_ms').upper()} is predicted {abs(error):.1%} {way} what"
        f" was measured, {figure.predicted:,.4g} ms against {figure.measured:,.4g}"
    )


def _word(stage: str) -> str:
    return {"handoff_ms": "hand-off"}.get(stage, stage.removesuffix("_ms"))
