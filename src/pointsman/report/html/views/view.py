"""A question with its charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pointsman.report.html.charts.chart import Chart


@dataclass(frozen=True, slots=True)
class View:
    """What a section of the page shows; ``remarks`` say how to read it and what is added up."""

    question: str
    charts: tuple[Chart, ...]
    remarks: tuple[str, ...] = ()

    @property
    def legend(self) -> Sequence[tuple[str, int]]:
        """Name and style of each series that shares a chart with others, once and in order."""
        several = [chart.series for chart in self.charts if len(chart.series) > 1]
        return list(dict.fromkeys((each.name, each.style) for those in several for each in those))
