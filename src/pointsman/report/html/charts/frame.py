"""Paper, axes, grid and references: what a chart has before its values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pointsman.report.html.charts.chart import Axis, Reference
from pointsman.report.html.charts.marks import rule, words
from pointsman.report.html.charts.scale import Scale, tick_text
from pointsman.report.html.markup import Markup, tag

# Small enough for the narrowest screens; wider ones show several charts beside one another.
WIDTH = 360.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 14.0, 26.0, 38.0
_CHARACTER = 7.5  # the width of one, at most
_LEAST_GAP = 30.0  # between the middles of two ticks' texts


@dataclass(frozen=True, slots=True)
class Paper:
    """The area between the axes."""

    left: float
    right: float
    top: float
    bottom: float


def svg(title: str, height: float, parts: Sequence[str]) -> Markup:
    """The drawing, which the keyboard can enter."""
    attributes = {
        "viewBox": f"0 0 {WIDTH:g} {height:g}",
        "role": "img",
        "tabindex": "0",
        "aria-label": f"{title}. Arrow keys read its values; the table below has them all.",
    }
    return tag("svg", attributes, *parts)


def x_axis(axis: Axis, scale: Scale, paper: Paper) -> Iterator[Markup]:
    """Grid, ticks and title along the bottom."""
    last = -_LEAST_GAP
    for tick in scale.ticks:
        x = scale.at(tick)
        yield rule(x, paper.top, x, paper.bottom, "grid")
        if x - last >= _LEAST_GAP:
            yield _x_tick(tick_text(tick, axis.percent), x, paper)
            last = x
    yield rule(paper.left, paper.bottom, paper.right, paper.bottom, "axis")
    yield words(axis.title, (paper.left + paper.right) / 2, paper.bottom + 30, "title middle")


def _x_tick(text: str, x: float, paper: Paper) -> Markup:
    """Below its place, and inside the picture."""
    half = _CHARACTER * len(text) / 2
    inside = min(max(x, half), WIDTH - half)
    return words(text, inside, paper.bottom + 14, "tick middle")


def y_axis(axis: Axis, scale: Scale, paper: Paper) -> Iterator[Markup]:
    """Grid, ticks along the left, and the title above them."""
    for tick in scale.ticks:
        y = scale.at(tick)
        yield rule(paper.left, y, paper.right, y, "grid")
        yield words(tick_text(tick, axis.percent), paper.left - 5, y + 3.5, "tick end")
    yield words(axis.title, 4, paper.top - 12, "title")


def references(
    shown: Sequence[Reference], x: Scale, y: Scale | None, paper: Paper
) -> Iterator[Markup]:
    """A dashed line and its words for each value, which the axes reach to.

    One that a logarithm does not have (0) stands at the axis's beginning, as points do.
    Words stand inside a plot, and above rows (no ``y``), where the rows' names are.
    """
    first = paper.top + 10 if y is not None else paper.top - 4
    for number, each in enumerate(shown):
        if each.across == "x":
            at = x.at(each.value)
            yield rule(at, paper.top, at, paper.bottom, "reference")
            is_right = at > (paper.left + paper.right) / 2
            place = (at - 4, "reference end") if is_right else (at + 4, "reference")
            yield words(each.text, place[0], first + 12 * number, place[1])
        if each.across == "y" and y is not None:
            at = y.at(each.value)
            yield rule(paper.left, at, paper.right, at, "reference")
            yield words(each.text, paper.right - 2, at - 4, "reference end")
