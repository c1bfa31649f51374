"""Which differences are more than noise?"""

from __future__ import annotations

from collections.abc import Sequence

from pointsman.report.html.charts.chart import POINTS, Axis, Point, Reference, Rows, Series
from pointsman.report.html.result import Difference, Run
from pointsman.report.html.views.view import View

QUESTION = "Which differences are more than noise?"
_REMARKS = (
    "Each against the baseline of its own result, with its interval: one across the line tells"
    " nothing apart.",
)
_TITLES = {
    "goodput_fraction": "goodput",
    "p95_ttft_ms": "P95 TTFT",
    "mean_ttft_ms": "mean TTFT",
    "mean_e2e_ms": "mean E2E",
    "e2e_ratio": "E2E",
    "ttft_ms": "mean TTFT",
    "tpot_ms": "mean TPOT",
    "e2e_ms": "mean E2E",
    "p95_ms": "P95 E2E",
    "p99_ms": "P99 E2E",
    "queue_wait_ms": "mean queue wait",
    "throughput_tokens_per_s": "tokens/s",
    "success_rate": "success rate",
    "makespan_ms": "makespan",
}

_Shown = list[tuple[Run, Difference]]


def differences(runs: tuple[Run, ...]) -> View | None:
    """A chart for each figure that has an interval, and baseline that it is held against."""
    listed = [(run, each) for run in runs for each in run.differences if each.interval is not None]
    kinds = dict.fromkeys((each.figure, each.against) for _, each in listed)
    charts = tuple(
        _chart(*kind, [(run, each) for run, each in listed if (each.figure, each.against) == kind])
        for kind in kinds
    )
    return View(QUESTION, charts, _REMARKS) if charts else None


def _chart(figure: str, against: str, shown: _Shown) -> Rows:
    title = _TITLES.get(figure, figure)
    is_share = figure.endswith("_fraction") or figure == "success_rate"
    is_ratio = figure.endswith("_ratio")
    unit = ", points" if is_share else ", ms" if figure.endswith("_ms") else ""
    return Rows(
        title=f"{title} {'over' if is_ratio else 'less'} that of {against}",
        x=Axis(f"{'ratio' if is_ratio else 'difference'} of {title}{unit}", percent=is_share),
        names=tuple(f"{run.name}: {each.verdict}" for run, each in shown),
        series=(Series("difference", 0, tuple(_points(shown)), POINTS),),
        references=(Reference(float(is_ratio), "no difference", across="x"),),
    )


def _points(shown: Sequence[tuple[Run, Difference]]) -> list[Point]:
    return [
        Point(each.interval.value, float(place), each.interval.low, each.interval.high)
        for place, (_, each) in enumerate(shown)
        if each.interval is not None
    ]
