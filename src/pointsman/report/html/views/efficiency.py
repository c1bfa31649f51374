"""What does low latency cost in throughput per GPU?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
_AT_HELD = ", at the highest rate held"
_UNLIKE = (
    "These are results of different requests: a front across them is of no one traffic; compare"
    " points of one result."
)

_Placed = tuple[str, str, Point]  # group, name, place


def efficiency(runs: tuple[Run, ...]) -> View | None:
    """A chart for each latency, of what was offered and of the highest rates held."""
    offered = [(run, run) for run in runs if run.at_held is None]
    held = [(run, run.at_held) for run in runs if run.at_held is not None]
    charts = (*_charts(held, _AT_HELD), *_charts(offered, ""))
    unlike = any(len({run.workload for run, _ in those}) > 1 for those in (held, offered))
    return View(QUESTION, charts, (*_REMARKS, *((_UNLIKE,) if unlike else ()))) if charts else None


def _charts(sources: Sequence[tuple[Run, Run | AtLoad]], of: str) -> list[Plot]:
    return [
        _chart(title, of, placed)
        for name, title in _CHARTS
        if len(placed := list(_placed(sources, name))) > 1
    ]


def _placed(sources: Sequence[tuple[Run, Run | AtLoad]], latency: str) -> Iterator[_Placed]:
    for run, source in sources:
        x, y = source.figure(latency), source.figure(_THROUGHPUT)
        if x is not None and y is not None:
            yield run.group or run.name, run.name, Point(x.value, y.value, label=run.name)


def _chart(title: str, of: str, placed: Sequence[_Placed]) -> Plot:
    groups = list(dict.fromkeys(group for group, _, _ in placed))
    series = [
        Series(group, style, tuple(point for g, _, point in placed if g == group), POINTS)
        for style, group in enumerate(groups)
    ]
    front = pareto_front([point for _, _, point in placed])
    return Plot(
        title=f"against {title.removesuffix(', ms')}{of}",
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
