"""What is a cache hit worth, and what does waiting for one cost?"""

from __future__ import annotations

from collections.abc import Sequence

from pointsman.report.html.charts.chart import LINE, POINTS, Axis, Plot, Point, Series
from pointsman.report.html.result import Run
from pointsman.report.html.views.view import View

HITS = "Do more cache hits come with shorter tails?"
SLACK = "How long may a request wait for its prefix?"
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
    """Hits and tails of the same policy with several slacks, a curve a result."""
    kinds = dict.fromkeys((run.policy, run.result) for run in runs)
    by_kind = {kind: _with_slack(runs, kind) for kind in kinds}
    several = {kind: found for kind, found in by_kind.items() if len(found) > 1}
    is_one_result = len({result for _, result in several}) == 1
    curves = {
        policy if is_one_result else f"{policy} ({result})": found
        for (policy, result), found in several.items()
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


def _with_slack(runs: Sequence[Run], kind: tuple[str, str]) -> dict[float, Run]:
    found = {run.slack_ms: run for run in runs if (run.policy, run.result) == kind}
    return {each: found[each] for each in sorted(each for each in found if each is not None)}


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
