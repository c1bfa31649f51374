"""How much load is held while the objectives are kept?"""

from __future__ import annotations

from pointsman.report.html.charts.chart import BAR, Axis, Point, Reference, Rows, Series
from pointsman.report.html.result import Run
from pointsman.report.html.views.view import View

QUESTION = "How much load is held while the objectives are kept?"
_REMARKS = (
    "The bar ends at the highest load at which enough requests kept all objectives, the line"
    " reaches to the next one tried, at which too few did.",
)


def held(runs: tuple[Run, ...]) -> View | None:
    """A chart for each traffic and fleet, or each traffic of plans; the one that holds most first:
    multiples of different rates are no order."""
    having = [run for run in runs if run.held is not None]
    places = dict.fromkeys((run.cell, run.workload) for run in having)
    charts = tuple(
        _chart(place[0], [run for run in having if (run.cell, run.workload) == place])
        for place in places
    )
    return View(QUESTION, charts, _REMARKS) if charts else None


def _chart(cell: str, runs: list[Run]) -> Rows:
    ordered = sorted(runs, key=_held, reverse=True)
    points = [_point(run, float(place)) for place, run in enumerate(ordered)]
    return Rows(
        title=cell or f"load held, {', '.join(dict.fromkeys(run.result for run in runs))}",
        x=Axis("load, times the trace's rate"),
        names=tuple(run.name for run in ordered),
        series=(Series("load held", 0, tuple(points), BAR),),
        references=(Reference(1.0, "as offered", across="x"),),
    )


def _held(run: Run) -> float:
    return 0.0 if run.held is None else run.held.held


def _point(run: Run, place: float) -> Point:
    assert run.held is not None
    if run.held.failed is None:
        return Point(run.held.held, place, label="or more")
    return Point(run.held.held, place, run.held.held, run.held.failed)
