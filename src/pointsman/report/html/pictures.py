"""Which views a page has: those whose data its results have; the others are named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pointsman.report.html.result import Prediction, Run
from pointsman.report.html.views.distributions import distributions
from pointsman.report.html.views.skew import skew
from pointsman.report.html.views.view import View

Runs = tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """A view, and what is said where it cannot be drawn."""

    draw: Callable[[Runs], View | None]
    absent: str


@dataclass(frozen=True, slots=True)
class Pictures:
    """What is shown and what is not."""

    views: tuple[View, ...]
    absent: tuple[str, ...]


PICTURES = (
    Picture(distributions, "Distributions of latencies: the result holds no quantiles."),
    Picture(skew, "How evenly replicas are loaded: the result holds no replicas."),
)


def pictures_of(runs: Runs, predictions: tuple[Prediction, ...]) -> Pictures:
    """Every view that can be drawn, in the order of PICTURES."""
    drawn = [(picture, picture.draw(runs)) for picture in PICTURES]
    return Pictures(
        views=tuple(view for _, view in drawn if view is not None),
        absent=tuple(picture.absent for picture, view in drawn if view is None),
    )
