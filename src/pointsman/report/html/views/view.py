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
        """Each series' name and style once, in order."""
        named = [(each.name, each.style) for chart in self.charts for each in chart.series]
        return list(dict.fromkeys(named))
