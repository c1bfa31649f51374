"""Why did requests go where they went?"""

from __future__ import annotations

from pointsman.metrics.reasons import ReasonsOverTime
from pointsman.report.html.charts.chart import STEPS, Axis, Plot, Point, Series
from pointsman.report.html.result import Run
from pointsman.report.html.views.view import View

QUESTION = "Why did requests go where they went?"
_REMARKS = (
    "How often each reason decided, by when requests came; counts of a reason add up to all that it"
    " decided. Policies with one reason alone have no chart.",
)


def reasons(runs: tuple[Run, ...]) -> View | None:
    """A chart for each policy that has several reasons."""
    telling = [
        (run, run.reasons_over_time)
        for run in runs
        if run.reasons_over_time is not None and len(run.reasons) > 1
    ]
    styles = list(dict.fromkeys(reason for _, over in telling for reason in over.counts))
    charts = tuple(counts_over_time(run.name, over, styles) for run, over in telling)
    return View(QUESTION, charts, _REMARKS) if charts else None


def counts_over_time(title: str, over: ReasonsOverTime, styles: list[str]) -> Plot:
    """Counts of each reason, a step a point; ``styles`` are the names in the order of styles."""
    step_s = over.step_ms / 1000.0
    return Plot(
        title=title,
        x=Axis("time, s"),
        y=Axis(f"choices in {step_s:,.0f} s"),
        series=tuple(
            Series(
                reason,
                styles.index(reason),
                tuple(Point(k * step_s, float(count)) for k, count in enumerate(counts)),
                STEPS,
                ends_at=len(counts) * step_s,
            )
            for reason, counts in over.counts.items()
        ),
    )
