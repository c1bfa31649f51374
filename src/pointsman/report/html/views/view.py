"""A question with its charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pointsman.report.html.charts.chart import Chart, Series


@dataclass(frozen=True, slots=True)
class View:
    """What a section of the page shows; ``remarks`` say how to read it and what is added up."""

    question: str
    charts: tuple[Chart, ...]
    remarks: tuple[str, ...] = ()

    @property
    def legend(self) -> Sequence[Series]:
        """Each series that shares a chart with others, once, in order and without its points."""
        several = [chart.series for chart in self.charts if len(chart.series) > 1]
        bare = (replace(each, points=(), ends_at=None) for those in several for each in those)
        return list(dict.fromkeys(bare))
