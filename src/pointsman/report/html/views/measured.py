"""What was measured, and how far do repeats differ?"""

from __future__ import annotations

from pointsman.report.html.charts.chart import BAR, Axis, Point, Rows, Series
from pointsman.report.html.result import SIMULATED, Run
from pointsman.report.html.views.view import View

QUESTION = "What was measured, and how far do repeats differ?"
_REMARKS = ("Lines are intervals over repeats; a bar without one had fewer than two.",)
_CHARTS = (
    ("ttft_ms", "mean TTFT", "ms"),
    ("tpot_ms", "mean TPOT", "ms"),
    ("e2e_ms", "mean E2E", "ms"),
    ("p99_ms", "P99 E2E", "ms"),
    ("queue_wait_ms", "mean queue wait", "ms"),
    ("throughput_tokens_per_s", "throughput", "tokens/s"),
    ("max_rank_makespan_ms", "slowest rank", "ms"),
    ("peak_memory_mb", "peak memory", "MiB"),
)


def measured(runs: tuple[Run, ...]) -> View | None:
    """A chart for each figure of groups that were measured, or quoted from others; a row each."""
    groups = [run for run in runs if run.origin != SIMULATED]
    charts = tuple(
        _chart(name, title, unit, having)
        for name, title, unit in _CHARTS
        if (having := [run for run in groups if name in run.figures])
    )
    return View(QUESTION, charts, _REMARKS) if charts else None


def _chart(name: str, title: str, unit: str, runs: list[Run]) -> Rows:
    figures = [run.figures[name] for run in runs]
    points = tuple(
        Point(each.value, float(place), each.low, each.high) for place, each in enumerate(figures)
    )
    return Rows(
        title=title,
        x=Axis(f"{title}, {unit}"),
        names=tuple(run.name for run in runs),
        series=(Series(title, 0, points, BAR),),
    )
