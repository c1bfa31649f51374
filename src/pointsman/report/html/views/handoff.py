"""What does handing caches over cost?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pointsman.metrics.latency import Spread
from pointsman.report.html.charts.chart import BAR, POINTS, Axis, Point, Rows, Series
from pointsman.report.html.quantities import TITLES
from pointsman.report.html.result import Run
from pointsman.report.html.views.view import View

QUESTION = "What does handing caches from prefill to decode cost?"
_TIMES = ("handoff_ms", "seat_wait_ms")
_FIGURES = {"mean": "mean", "p50": "P50", "p95": "P95", "p99": "P99", "worst": "worst"}


def handoff(runs: tuple[Run, ...]) -> View | None:
    """Its time and the wait for a seat there, a row a figure; the bytes moved, a row a run."""
    charts = [*_times(runs), *_bytes(runs)]
    return View(QUESTION, tuple(charts)) if charts else None


def _times(runs: Sequence[Run]) -> Iterator[Rows]:
    for name in _TIMES:
        series = tuple(
            Series(run.name, run.style, points, POINTS)
            for run in runs
            if name in run.latencies and (points := tuple(_points(run.latencies[name].spread)))
        )
        if series:
            yield Rows(
                title=f"{TITLES[name]} of a request",
                x=Axis(f"{TITLES[name]}, ms"),
                names=tuple(_FIGURES.values()),
                series=series,
            )


def _points(spread: Spread) -> Iterator[Point]:
    for place, figure in enumerate(_FIGURES):
        value = getattr(spread, figure)
        if value is not None:
            yield Point(value, float(place))


def _bytes(runs: Sequence[Run]) -> Iterator[Rows]:
    for name, title in (
        ("handoff_bytes", "bytes moved, all requests"),
        ("kv_handoff_bytes", "bytes moved, a request"),
    ):
        having = [(run, figure) for run in runs if (figure := run.figures.get(name)) is not None]
        if having:
            points = [
                Point(figure.value, float(place), figure.low, figure.high)
                for place, (_, figure) in enumerate(having)
            ]
            yield Rows(
                title=title,
                x=Axis("bytes"),
                names=tuple(run.name for run, _ in having),
                series=(Series("bytes", 2, tuple(points), BAR),),
            )
