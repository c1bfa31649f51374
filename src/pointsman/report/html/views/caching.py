"""What is a cache hit worth, and what does waiting for one cost?"""

from __future__ import annotations

from collections.abc import Sequence

from pointsman.report.html.charts.chart import LINE, POINTS, Axis, Plot, Point, Series
from pointsman.report.html.result import Run
from pointsman.report.html.views.view import View

HITS = "Do more cache hits come with shorter tails?"
SLACK = "How long may a request wait for its prefix?"
_SLACK = "slack_ms"
_CACHED = "cached_token_fraction"
_CACHED_AXIS = Axis("prompt tokens cached", percent=True)
_TAILS = (("p99_ttft_ms", "P99 TTFT"), ("p99_e2e_ms", "P99 E2E"))


def hits(runs: tuple[Run, ...]) -> View | None:
    """Tails against the share of prompt tokens that were cached; a point a run."""
    charts = []
    for name, title in _TAILS:
        series = [
            Series(run.name, run.style, (Point(cached.value, tail.value),), POINTS)
            for run in runs
            if (cached := run.figure(_CACHED)) and (tail := run.figure(name))
        ]
        if len(series) > 1:
            axis = Axis(f"{title}, ms", log=True)
            charts.append(Plot(f"{title} against hits", _CACHED_AXIS, axis, tuple(series)))
    return View(HITS, tuple(charts)) if charts else None


def slack(runs: tuple[Run, ...]) -> View | None:
    """Hits and tails of the same policy with several slacks, on the same requests and fleet."""
    alike: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        if _SLACK in run.parameters:
            alike.setdefault((run.policy, run.workload, run.fleet), []).append(run)
    several = len({(workload, fleet) for _, workload, fleet in alike}) > 1
    curves = {
        f"{policy} ({those[0].result})" if several else policy: found
        for (policy, _, _), those in alike.items()
        if len(found := _by_slack(those)) > 1
    }
    charts = [
        _chart(title, axis, curves, name)
        for name, title, axis in (
            (_CACHED, "hits against slack", _CACHED_AXIS),
            *((n, f"{t} against slack", Axis(f"{t}, ms", log=True)) for n, t in _TAILS),
        )
    ]
    shown = tuple(chart for chart in charts if chart.series)
    return View(SLACK, shown) if shown else None


def _by_slack(runs: Sequence[Run]) -> dict[float, Run]:
    """Of one slack the first: the same again is the same run."""
    found: dict[float, Run] = {}
    for run in runs:
        found.setdefault(run.parameters[_SLACK], run)
    return dict(sorted(found.items()))


def _chart(title: str, axis: Axis, curves: dict[str, dict[float, Run]], name: str) -> Plot:
    series = []
    for style, (curve, found) in enumerate(curves.items()):
        points = tuple(
            Point(each, figure.value, figure.low, figure.high)
            for each, run in found.items()
            if (figure := run.figure(name)) is not None
        )
        if len(points) > 1:
            series.append(Series(curve, style, points, LINE))
    return Plot(title, Axis("slack, ms", log=True), axis, tuple(series))
