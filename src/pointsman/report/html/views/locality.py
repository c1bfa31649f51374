"""Did choices for locality wait longer than they were allowed to?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pointsman.metrics.latency import Spread
from pointsman.report.html.charts.chart import POINTS, Axis, Point, Reference, Rows, Series
from pointsman.report.html.result import Audit, Run
from pointsman.report.html.views.view import View

QUESTION = "Did choices for locality wait longer than they were allowed to?"
_REMARKS = (
    "Waits beyond the shortest queue, as the router expected them and as they came, at P50, P95,"
    " P99 and the worst. What is 0 or less stands at the left edge.",
)
_FIGURES = ("p50", "p95", "p99", "worst")


def locality(runs: tuple[Run, ...]) -> View | None:
    """A chart for each policy that chooses locality within a bound."""
    audited = [(run, run.audit) for run in runs if run.audit is not None and run.audit.choices]
    charts = tuple(_chart(run.name, audit) for run, audit in audited)
    return View(QUESTION, charts, _REMARKS) if charts else None


def _chart(name: str, audit: Audit) -> Rows:
    bound = audit.bound_ms
    references = () if bound is None else (Reference(bound, f"bound {bound:g} ms", across="x"),)
    share = f"{audit.over_bound:,} of {audit.choices:,} ({audit.over_bound_fraction:.1%})"
    return Rows(
        title=f"{name}: {share} beyond the bound",
        x=Axis("extra wait, ms", log=True),
        names=("P50", "P95", "P99", "worst"),
        series=(
            Series("expected", 0, tuple(_points(audit.expected_extra_ms, _FIGURES)), POINTS),
            Series("realised", 1, tuple(_points(audit.realised_extra_ms, _FIGURES)), POINTS),
        ),
        references=references,
    )


def _points(spread: Spread, names: Sequence[str]) -> Iterator[Point]:
    for place, name in enumerate(names):
        value = getattr(spread, name)
        if value is not None:
            yield Point(value, float(place))
