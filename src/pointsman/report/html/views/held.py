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
    """A chart for each traffic and fleet, the one that holds most first."""
    having = [run for run in runs if run.held is not None]
    charts = tuple(
        _chart(cell, [run for run in having if run.cell == cell])
        for cell in dict.fromkeys(run.cell for run in having)
    )
    return View(QUESTION, charts, _REMARKS) if charts else None


def _chart(cell: str, runs: list[Run]) -> Rows:
    ordered = sorted(runs, key=_held, reverse=True)
    points = [_point(run, float(place)) for place, run in enumerate(ordered)]
    return Rows(
        title=cell or "load held",
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
