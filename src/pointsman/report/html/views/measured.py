"""What was measured, and how far do repeats differ?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pointsman.report.html.charts.chart import BAR, Axis, Point, Rows, Series, Table
from pointsman.report.html.result import QUOTED, SIMULATED, Run
from pointsman.report.html.views.view import View

QUESTION = "What was measured, and how far do repeats differ?"
_INTERVALS = "Lines are intervals over repeats; without one there is none, as of a single repeat."
_RANGES = "Lines of slowest ranks reach from the least to the most of all repeats."
_QUOTED = "Of figures that others state no line is known: {}."
_RANK = "max_rank_makespan_ms"
_CHARTS = (
    ("ttft_ms", "mean TTFT", "ms"),
    ("tpot_ms", "mean TPOT", "ms"),
    ("e2e_ms", "mean E2E", "ms"),
    ("p99_ms", "P99 E2E", "ms"),
    ("queue_wait_ms", "mean queue wait", "ms"),
    ("throughput_tokens_per_s", "throughput", "tokens/s"),
    (_RANK, "slowest rank", "ms"),
    ("peak_memory_mb", "peak memory", "MiB"),
)


def measured(runs: tuple[Run, ...]) -> View | None:
    """A chart for each figure of groups that were measured, or quoted from others; a row each."""
    groups = [run for run in runs if run.origin != SIMULATED]
    charts = tuple(
        _chart(name, title, unit, having)
        for name, title, unit in _CHARTS
        if (having := [run for run in groups if name in run.figures])
    )
    return View(QUESTION, charts, tuple(_remarks(groups))) if charts else None


def _remarks(groups: Sequence[Run]) -> Iterator[str]:
    """What the lines are, of whatever is shown."""
    ours = [run for run in groups if run.origin != QUOTED]
    if any(_RANK not in run.figures for run in ours):
        yield _INTERVALS
    if any(_RANK in run.figures for run in ours):
        yield _RANGES
    if quoted := [run.name for run in groups if run.origin == QUOTED]:
        yield _QUOTED.format(", ".join(quoted))


def _chart(name: str, title: str, unit: str, runs: list[Run]) -> Rows:
    """None of these can be below 0: lines of wide intervals end there, and the table has them
    whole."""
    figures = [run.figures[name] for run in runs]
    points = tuple(
        Point(each.value, float(place), _not_below_0(each.low), each.high)
        for place, each in enumerate(figures)
    )
    return Rows(
        title=title,
        x=Axis(f"{title}, {unit}"),
        names=tuple(run.name for run in runs),
        series=(Series(title, 0, points, BAR),),
        table=Table(
            ("", f"{title}, {unit}", "low", "high"),
            tuple((run.name, f.value, f.low, f.high) for run, f in zip(runs, figures, strict=True)),
        ),
    )


def _not_below_0(low: float | None) -> float | None:
    return None if low is None else max(0.0, low)
