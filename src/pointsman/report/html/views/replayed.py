"""When do choices differ from those that were recorded?"""

from __future__ import annotations

from pointsman.report.html.result import Run
from pointsman.report.html.views.reasons import counts_over_time
from pointsman.report.html.views.view import View

QUESTION = "When do choices differ from those that were recorded?"
_REMARKS = ("How many came out otherwise, by the reason that was recorded.",)


def replayed(runs: tuple[Run, ...]) -> View | None:
    """A chart for each log that was replayed and differs."""
    having = [(run, run.differing) for run in runs if run.differing is not None]
    styles = list(dict.fromkeys(reason for _, over in having for reason in over.counts))
    charts = tuple(counts_over_time(run.name, over, styles) for run, over in having)
    return View(QUESTION, charts, _REMARKS) if charts else None
