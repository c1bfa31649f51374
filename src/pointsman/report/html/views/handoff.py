"""What does handing caches over cost?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pointsman.report.html.charts.chart import BAR, POINTS, Axis, Point, Rows, Series
from pointsman.report.html.result import Run
from pointsman.report.html.views.quantities import TITLES
from pointsman.report.html.views.view import View

QUESTION = "What does handing caches from prefill to decode cost?"
_TIMES = ("handoff_ms", "seat_wait_ms")
_FIGURES = ("mean", "p50", "p95", "p99", "worst")


def handoff(runs: tuple[Run, ...]) -> View | None:
    """Its time, the wait for a seat to decode in, and the bytes moved; a row a run."""
    charts = [*_times(runs), *_bytes(runs)]
    return View(QUESTION, tuple(charts)) if charts else None


def _times(runs: Sequence[Run]) -> Iterator[Rows]:
    for name in _TIMES:
        having = [(run, run.latencies[name].spread) for run in runs if name in run.latencies]
        points = [
            Point(value, float(place), label=figure.upper() if figure[0] == "p" else figure)
            for place, (_, spread) in enumerate(having)
            for figure in _FIGURES
            if (value := getattr(spread, figure)) is not None
        ]
        if points:
            yield Rows(
                title=f"{TITLES[name]}: mean, P50, P95, P99, worst",
                x=Axis(f"{TITLES[name]}, ms"),
                names=tuple(run.name for run, _ in having),
                series=(Series("of a request", 0, tuple(points), POINTS),),
            )


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
