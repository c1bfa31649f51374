"""What does low latency cost in throughput per GPU?"""

from __future__ import annotations

from collections.abc import Sequence

from pointsman.report.html.charts.chart import POINTS, STEPS, Axis, Plot, Point, Series
from pointsman.report.html.charts.marks import REFERENCE
from pointsman.report.html.result import AtLoad, Run
from pointsman.report.html.views.view import View

QUESTION = "What does low latency cost in throughput per GPU?"
FRONT = "Pareto front"
_THROUGHPUT = "output_tokens_per_s_per_gpu"
_CHARTS = (
    ("p95_ttft_ms", "P95 TTFT, ms"),
    ("p95_tpot_ms", "P95 TPOT, ms"),
    ("p95_e2e_ms", "P95 E2E, ms"),
)
_REMARKS = (
    "Up and to the left is better; of whatever is not on the front something else has more"
    " throughput at no more latency.",
)
_AT_HELD = "Each at the highest rate that it holds."

_Placed = tuple[str, str, Point]  # group, name, place


def efficiency(runs: tuple[Run, ...]) -> View | None:
    """A chart for each latency; where runs were tried at the rate they hold, there."""
    at_held = any(run.at_held is not None for run in runs)
    charts = tuple(
        _chart(title, placed)
        for name, title in _CHARTS
        if len(placed := _placed(runs, name, at_held)) > 1
    )
    remarks = (*_REMARKS, *((_AT_HELD,) if at_held else ()))
    return View(QUESTION, charts, remarks) if charts else None


def _placed(runs: Sequence[Run], latency: str, at_held: bool) -> list[_Placed]:
    found = []
    for run in runs:
        source: Run | AtLoad | None = run.at_held if at_held else run
        if source is None:
            continue
        x, y = source.figure(latency), source.figure(_THROUGHPUT)
        if x is not None and y is not None:
            found.append((run.group or run.name, run.name, Point(x.value, y.value, label=run.name)))
    return found


def _chart(title: str, placed: Sequence[_Placed]) -> Plot:
    groups = list(dict.fromkeys(group for group, _, _ in placed))
    series = [
        Series(group, style, tuple(point for g, _, point in placed if g == group), POINTS)
        for style, group in enumerate(groups)
    ]
    front = pareto_front([point for _, _, point in placed])
    return Plot(
        title=f"against {title.removesuffix(', ms')}",
        x=Axis(title, log=True),
        y=Axis("output tokens/s/GPU"),
        series=(Series(FRONT, REFERENCE, tuple(front), STEPS), *series),
    )


def pareto_front(points: Sequence[Point]) -> list[Point]:
    """Those that nothing beats in both: from left to right, each higher than all before."""
    front: list[Point] = []
    for point in sorted(points, key=lambda each: (each.x, -each.y)):
        if not front or point.y > front[-1].y:
            front.append(point)
    return front
