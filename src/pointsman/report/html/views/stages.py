"""Where does the time of a request go?"""

from __future__ import annotations

from pointsman.evidence.envelope import STAGE_NAMES
from pointsman.report.html.charts.chart import PART, Axis, Point, Rows, Series, Table
from pointsman.report.html.quantities import TITLES
from pointsman.report.html.result import Run
from pointsman.report.html.views.view import View
from pointsman.report.table import number

QUESTION = "Where does the time of a request go?"
_REMARKS = (
    "Shares of the mean E2E of the requests that finished, in the order of a request; the rest up"
    " to 100% is in no stage that is told. Mean milliseconds are under Data.",
)
_DIGITS = 4


def stages(runs: tuple[Run, ...]) -> View | None:
    """A row a run, in it a part for each stage."""
    having = [run for run in runs if run.stages]
    if not having:
        return None
    names = [name for name in STAGE_NAMES if any(name in run.stages for run in having)]
    chart = Rows(
        title="share of each stage",
        x=Axis("of the mean E2E", percent=True, high=1.0),
        names=tuple(f"{run.name}: {number(_whole_ms(run), _DIGITS)} ms" for run in having),
        series=tuple(_series(name, style, having) for style, name in enumerate(names)),
        table=Table(
            ("", *(_title(name) for name in names), "E2E"),
            tuple(
                (run.name, *(run.stages.get(n) for n in names), _whole_ms(run)) for run in having
            ),
        ),
    )
    return View(QUESTION, (chart,), _REMARKS)


def _series(name: str, style: int, runs: list[Run]) -> Series:
    points = tuple(
        Point(mean_ms / _whole_ms(run), float(place), label=f"{number(mean_ms, _DIGITS)} ms")
        for place, run in enumerate(runs)
        if (mean_ms := run.stages.get(name)) is not None and _whole_ms(run)
    )
    return Series(_title(name), style, points, PART)


def _whole_ms(run: Run) -> float:
    """The mean E2E; where it is not known, or stages of other requests are more, these."""
    e2e = run.latencies.get("e2e_ms")
    known_ms = None if e2e is None else e2e.spread.mean
    return max(known_ms or 0.0, sum(run.stages.values()))


def _title(name: str) -> str:
    return TITLES.get(f"{name}_ms", name.replace("_", " "))
