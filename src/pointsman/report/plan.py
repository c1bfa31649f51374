"""A plan as a table, as JSON and as CSV."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pointsman.plan.advice import advise
from pointsman.plan.candidate import ShapeResult
from pointsman.plan.plan import Plan
from pointsman.plan.simulations import goodput_fraction
from pointsman.report.document import text_of
from pointsman.report.plan_document import plan_document
from pointsman.report.table import csv_text, number, percent, text_table, wrapped
from pointsman.workload.reading import ReadOptions
from pointsman.workload.steps import arrival_step_ms

_PIPELINES = (
    "PP is priced as full pipelines: with little load prompts take up to PP times as long as shown"
)

GROUPS = (
    ("", 3),
    ("at the offered rate", 6),
    ("held", 3),
    ("", 1),
)
HEADINGS = (
    "shape",
    "policy",
    "GPUs",
    "goodput",
    "TTFT p95",
    "TPOT p95",
    "E2E p95",
    "imbalance",
    "comm",
    "times",
    "per s",
    "per s GPU",
    "decision",
)


def plan_text(plan: Plan, reading: ReadOptions, form: str, top: int) -> str:
    """The plan as ``table`` (its first rows), ``json`` or ``csv``."""
    if form == "json":
        return text_of(plan_document(plan, reading))
    if form == "csv":
        return _csv(plan, reading)
    return _table(plan, top)


def _csv(plan: Plan, reading: ReadOptions) -> str:
    """A line a shape, the baseline first; of nested groups only what is a figure of the shape."""
    document = plan_document(plan, reading)
    rows = [_flat(each) for each in (document["baseline"], *document["shapes"])]
    return csv_text(list(rows[0]), [list(row.values()) for row in rows])


def _flat(shape: dict[str, Any]) -> dict[str, Any]:
    groups = ("metrics", "max_rate")
    row = {name: value for name, value in shape.items() if not isinstance(value, dict | list)}
    for group in groups:
        for name, value in shape[group].items():
            if isinstance(value, dict) and "p95" in value:
                row[f"p95_{name}"] = value["p95"]
            elif not isinstance(value, dict | list):
                row[name] = value
    row["goodput_fraction"] = shape["metrics"]["goodput"]["fraction"]
    row["reason"] = row.pop("reason")
    return row


def _table(plan: Plan, top: int) -> str:
    """The first rows, and those of the baseline and of what to take, wherever they stand."""
    advice = advise(plan)
    shown = [
        result
        for place, result in enumerate(plan.results)
        if place < top or result.shape.label in (advice.shape, plan.baseline.shape.label)
    ]
    told = [result for result in shown if result is shown[0] or result.shape.label == advice.shape]
    parts = (
        _head(plan),
        text_table(HEADINGS, [_row(plan, each) for each in shown], left_columns=2, groups=GROUPS),
        _notes(plan, len(shown)),
        "".join(map(_reason, told)),
        wrapped(advice.sentence),
    )
    return "\n".join(part for part in parts if part)


def _head(plan: Plan) -> str:
    workload, question = plan.workloads[0], plan.question
    source = workload.source
    words = [
        f"{name.removesuffix('_ms')} {number(value)} ms"
        for name, value in asdict(question.objectives).items()
        if value is not None
    ]
    costs = "the roofline's" if plan.hardware.calibrated is None else "calibrated"
    return wrapped(
        f"{source.name}: {len(workload):,} requests over {number(workload.span_ms / 1000)} s"
        f" ({source.format}), {number(plan.offered_rps)} a second; {plan.hardware.name}"
    ) + wrapped(
        f"objectives: {', '.join(words)} in {question.attainment:.4g} of all requests; costs are"
        f" {costs}, taken to be off by up to {question.model_error_fraction:.1%}; * is on the"
        " Pareto front"
    )


def _row(plan: Plan, result: ShapeResult) -> tuple[str, ...]:
    metrics, held = result.metrics, result.limit.held
    serving = metrics.serving
    rate = 0.0 if held is None else held * plan.offered_rps
    least = ">" if result.limit.failed is None else ""
    baseline_ms = plan.baseline.metrics.serving.makespan_ms
    return (
        result.shape.label + (" *" if result in plan.pareto else ""),
        result.policy,
        number(result.shape.gpus),
        percent(goodput_fraction(metrics)),
        *(_ms(spread.p95) for spread in (serving.ttft_ms, serving.tpot_ms, serving.e2e_ms)),
        number(metrics.imbalance_ratio),
        percent(metrics.comm_cost_ms / baseline_ms if baseline_ms else None),
        "-" if held is None else f"{least}{number(held)}",
        "-" if held is None else number(rate),
        "-" if held is None else number(rate / result.shape.gpus),
        "baseline" if result.judgement is None else result.judgement.decision,
    )


def _ms(value: float | None) -> str:
    return "-" if value is None else number(value)


def _notes(plan: Plan, shown: int) -> str:
    left = len(plan.results) - shown
    resumed = f", {plan.resumed:,} shapes taken from the file" if plan.resumed else ""
    lines = [
        *([f"{left:,} further shapes: --top, or --format json or csv"] if left > 0 else ()),
        *(f"dropped {each.shapes:,} of {each.instance}: {each.reason}" for each in plan.dropped),
        *(
            f"not ranked, outside the calibrated range: {each.shape}: {each.reason}"
            for each in plan.refused
        ),
        f"{len(plan.results):,} shapes by {plan.simulations:,} simulations{resumed}",
        *_steps(plan),
        *([_PIPELINES] if any(each.shape.pp > 1 for each in plan.results) else ()),
    ]
    return "".join(map(wrapped, lines))


def _steps(plan: Plan) -> list[str]:
    """That no rate sets requests apart which the trace has at one instant."""
    step_ms = arrival_step_ms(plan.workloads[0].arrival_ms)
    if step_ms is None:
        return []
    return [
        f"arrivals are recorded in steps of {number(step_ms)} ms: requests of one step arrive at"
        " once, at every rate; --spread-arrivals sets them apart"
    ]


def _reason(result: ShapeResult) -> str:
    if result.judgement is None:
        return ""
    judgement = result.judgement
    return wrapped(
        f"{result.shape.label}: {judgement.decision}: {judgement.reason}; next:"
        f" {judgement.next_action}"
    )
