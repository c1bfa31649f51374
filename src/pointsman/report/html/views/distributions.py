"""How long do requests wait, from the luckiest to the last one?"""

from __future__ import annotations

from collections.abc import Sequence

from pointsman.metrics.distribution import QUANTILE_LEVELS
from pointsman.report.html.charts.chart import Axis, Plot, Point, Series, Table
from pointsman.report.html.quantities import TITLES
from pointsman.report.html.result import Run
from pointsman.report.html.views.view import View

QUESTION = "How long do requests wait, from the luckiest to the last one?"
_SHOWN = ("queue_wait_ms", "ttft_ms", "tpot_ms", "e2e_ms")
_REMARKS = (
    "Each line says which share of the requests had at most so many ms, of those that have such a"
    " time: one that failed or was rejected has none, one of a single token no TPOT. Values are"
    " those that occurred, at every percent and, in the last one, at every tenth of a percent. A"
    " time of 0 stands at the left edge.",
)


def distributions(runs: tuple[Run, ...]) -> View | None:
    """A cumulative distribution for each latency that has quantiles."""
    charts = tuple(_chart(name, with_it) for name in _SHOWN if (with_it := _having(runs, name)))
    return View(QUESTION, charts, _REMARKS) if charts else None


def _having(runs: Sequence[Run], name: str) -> list[tuple[Run, tuple[float, ...]]]:
    found = []
    for run in runs:
        latency = run.latencies.get(name)
        if latency is not None and latency.quantiles is not None:
            found.append((run, latency.quantiles))
    return found


def _chart(name: str, runs: Sequence[tuple[Run, tuple[float, ...]]]) -> Plot:
    series = tuple(
        Series(
            run.name,
            run.style,
            tuple(Point(x, y) for x, y in zip(values, QUANTILE_LEVELS, strict=True)),
        )
        for run, values in runs
    )
    columns = [values for _, values in runs]
    return Plot(
        title=TITLES[name],
        x=Axis(f"{TITLES[name]}, ms", log=True),
        y=Axis("share of requests", percent=True, high=1.0),
        series=series,
        table=Table(
            ("share of requests", *(f"{run.name}, ms" for run, _ in runs)),
            tuple(zip(QUANTILE_LEVELS, *columns, strict=True)),
        ),
    )
