"""Do all replicas get the same work?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pointsman.report.html.charts.chart import POINTS, Axis, Point, Reference, Rows, Series
from pointsman.report.html.result import Run, Share
from pointsman.report.html.views.view import View

QUESTION = "Do all replicas get the same work, by requests and by busy time?"
_REMARKS = (
    "A mark is a replica, over the mean of all that do the same work. An even number of requests"
    " can hide an uneven load. Skew is (largest - smallest) / mean.",
)

_Amount = Callable[[Share], float | None]


def skew(runs: tuple[Run, ...]) -> View | None:
    """Requests and busy time of each replica, beside one another; a row a policy and pool."""
    charts = (
        _chart("by requests", "requests", runs, lambda share: share.requests),
        _chart("by busy time", "busy", runs, lambda share: share.busy_ms),
    )
    shown = tuple(chart for chart in charts if chart.names)
    return View(QUESTION, shown, _REMARKS) if shown else None


def _chart(title: str, figure: str, runs: Sequence[Run], amount: _Amount) -> Rows:
    rows = [row for run in runs for row in _rows(run, figure, amount)]
    points = [
        Point(x, float(place), label=label)
        for place, (_, values) in enumerate(rows)
        for x, label in values
    ]
    return Rows(
        title=title,
        x=Axis("of the replicas' mean", percent=True),
        names=tuple(name for name, _ in rows),
        series=(Series("replica", 0, tuple(points), POINTS),),
        references=(Reference(1.0, "even", across="x"),),
    )


def _rows(run: Run, figure: str, amount: _Amount) -> Iterator[tuple[str, list[tuple[float, str]]]]:
    """Name and values of each pool of several replicas in which every one's amount is known."""
    for pool in dict.fromkeys(share.pool for share in run.shares):
        there = [(share, amount(share)) for share in run.shares if share.pool == pool]
        known = [(share, value) for share, value in there if value is not None]
        total = sum(value for _, value in known)
        if len(known) < max(2, len(there)) or not total:
            continue
        mean = total / len(known)
        told = run.skews.get(pool, {}).get(figure)
        name = run.name if pool == "all" else f"{run.name}, {pool}"
        labelled = name if told is None else f"{name}: skew {told:.3g}"
        yield labelled, [(value / mean, _label(share, figure)) for share, value in known]


def _label(share: Share, figure: str) -> str:
    if figure == "busy" and share.busy_ms is not None:
        return f"replica {share.name}, {share.busy_ms:,.0f} ms"
    return f"replica {share.name}, {share.requests:,} requests"
