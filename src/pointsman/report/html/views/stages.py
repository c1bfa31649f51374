"""Where does the time of a request go?"""

from __future__ import annotations

from pointsman.evidence.envelope import STAGE_NAMES
from pointsman.report.html.charts.chart import BAR, Axis, Point, Rows, Series
from pointsman.report.html.result import Run
from pointsman.report.html.views.quantities import TITLES
from pointsman.report.html.views.view import View

QUESTION = "Where does the time of a request go?"
_REMARKS = (
    "The mean of each stage over the requests that finished, in their order: means follow one"
    " another and add up to E2E, as far as all stages are known.",
)


def stages(runs: tuple[Run, ...]) -> View | None:
    """A row a run, in it a bar for each stage."""
    having = [run for run in runs if run.stages]
    if not having:
        return None
    names = [name for name in STAGE_NAMES if any(name in run.stages for run in having)]
    chart = Rows(
        title="mean of each stage",
        x=Axis("ms"),
        names=tuple(run.name for run in having),
        series=tuple(_series(name, style, having) for style, name in enumerate(names)),
    )
    return View(QUESTION, (chart,), _REMARKS)


def _series(name: str, style: int, runs: list[Run]) -> Series:
    points = tuple(
        Point(run.stages[name], float(place))
        for place, run in enumerate(runs)
        if name in run.stages
    )
    return Series(TITLES.get(name, name.replace("_", " ")), style, points, BAR)
