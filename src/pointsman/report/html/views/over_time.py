"""How full is each replica over time?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pointsman.comparison.over_time import OverTime, ReplicaOverTime
from pointsman.report.html.charts.chart import LINE, Axis, Plot, Point, Series
from pointsman.report.html.charts.marks import STYLES
from pointsman.report.html.result import Run
from pointsman.report.html.views.view import View

QUESTION = "How full is each replica over time?"
MOST_LINES = 48  # of all runs together; more are drawn as their least, middle and most,
# and so are those of a run that has more than there are styles
_CHARTS: tuple[tuple[str, Axis, Callable[[ReplicaOverTime], Sequence[float]]], ...] = (
    ("waiting", Axis("requests waiting"), lambda replica: replica.waiting),
    ("running", Axis("requests running"), lambda replica: replica.running),
    (
        "KV use",
        Axis("KV blocks in use", percent=True, high=1.0),
        lambda replica: replica.kv_used_fraction,
    ),
)
_EACH = "A line is a replica, sampled at even steps: what lasts shorter may stand between two."
_TOGETHER = (
    "Replicas are too many for a line each: at every step the line is the middle one of them, the"
    " band reaches from the least to the most loaded."
)


def over_time(runs: tuple[Run, ...]) -> View | None:
    """Three charts for each run that was sampled."""
    sampled = [(run, run.over_time) for run in runs if run.over_time is not None]
    if not sampled:
        return None
    lines = [len(times.replicas) for _, times in sampled]
    draw = _each if sum(lines) <= MOST_LINES and max(lines) <= STYLES else _together
    charts = tuple(
        Plot(
            title=f"{run.name}: {title}",
            x=Axis("time, s"),
            y=axis,
            series=draw(times, [amounts(replica) for replica in times.replicas]),
        )
        for run, times in sampled
        for title, axis, amounts in _CHARTS
    )
    return View(QUESTION, charts, (_EACH if draw is _each else _TOGETHER,))


def _each(times: OverTime, columns: Sequence[Sequence[float]]) -> tuple[Series, ...]:
    return tuple(
        Series(
            f"replica {number}",
            number,
            tuple(Point(_seconds(times, k), float(value)) for k, value in enumerate(column)),
            LINE,
        )
        for number, column in enumerate(columns)
    )


def _together(times: OverTime, columns: Sequence[Sequence[float]]) -> tuple[Series, ...]:
    points = []
    for k, values in enumerate(zip(*columns, strict=True)):
        ordered = sorted(map(float, values))
        middle = ordered[(len(ordered) - 1) // 2]
        points.append(Point(_seconds(times, k), middle, ordered[0], ordered[-1]))
    return (Series("middle replica", 0, tuple(points), LINE),)


def _seconds(times: OverTime, sample: int) -> float:
    return sample * times.step_ms / 1000.0
