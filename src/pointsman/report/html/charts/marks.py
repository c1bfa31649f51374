"""Lines, bands, points and bars at places that are known, as SVG.

A style is a colour, a dash and a shape, so that series can be told apart without colours too; which
colour is the page's style sheet's business. Of ``STYLES`` no two have the same dash and shape, nor
the same colour and shape, which is what points have.

    style   0..7              8..15             16..23            24..31
    dash    0 1 2 3 0 1 2 3   2 3 0 1 2 3 0 1   0 1 2 3 0 1 2 3   2 3 0 1 2 3 0 1
    shape   0 1 2 3 4 5 6 7   1 2 3 4 5 6 7 0   2 3 4 5 6 7 0 1   3 4 5 6 7 0 1 2
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pointsman.report.html.markup import Attributes, Markup, tag

COLOURS = 8
STYLES = 32
REFERENCE = -1  # what series are held against: in ink, dotted, without marks
_DOTS = "1.5 3"
_DASHES = ("", "7 3", "2 2.5", "9 3 2 3")
_R = 3.6
_SHAPES = (
    "M-{r},0a{r},{r} 0 1,0 {d},0a{r},{r} 0 1,0 -{d},0z",  # circle
    "M-{r},-{r}H{r}V{r}H-{r}z",  # square
    "M0,-{t}L{t},0L0,{t}L-{t},0z",  # diamond
    "M0,-{t}L{t},{r}L-{t},{r}z",  # triangle
    "M0,{t}L{t},-{r}L-{t},-{r}z",  # triangle, down
    "M-{w},-{t}H{w}V-{w}H{t}V{w}H{w}V{t}H-{w}V{w}H-{t}V-{w}H-{w}z",  # plus
    "M-{t},-{t}H{t}L-{t},{t}H{t}z",  # hourglass
    "M-{t},-{t}V{t}L{t},-{t}V{t}z",  # the same, lying
)


@dataclass(frozen=True, slots=True)
class Placed:
    """A point on the paper; ``low`` and ``high`` on the axis that its value is on."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


def style_class(style: int) -> str:
    """The class that gives a series its colour."""
    return "reference" if style == REFERENCE else f"c{style % COLOURS}"


def line(points: Sequence[Placed], style: int, stepped: bool = False) -> Markup:
    """Through all points, or level from each to the next."""
    attributes = {"class": "line", "d": _path(points, stepped)}
    turn = (style + 2 * (style // COLOURS)) % len(_DASHES)
    dash = _DOTS if style == REFERENCE else _DASHES[turn]
    return _empty("path", {**attributes, **({"stroke-dasharray": dash} if dash else {})})


def band(points: Sequence[Placed]) -> Markup:
    """The area between the bounds of points that have them."""
    bounded = [point for point in points if point.low is not None and point.high is not None]
    if len(bounded) < 2:
        return Markup("")
    ends = [f"{_n(p.x)},{_n(p.low or 0.0)}" for p in bounded]
    ends += [f"{_n(p.x)},{_n(p.high or 0.0)}" for p in reversed(bounded)]
    return _empty("path", {"class": "band", "d": f"M{'L'.join(ends)}z"})


def whisker(point: Placed, upright: bool) -> Markup:
    """From one bound to the other."""
    if point.low is None or point.high is None:
        return Markup("")
    if upright:
        path = f"M{_n(point.x)},{_n(point.low)}V{_n(point.high)}"
    else:
        path = f"M{_n(point.low)},{_n(point.y)}H{_n(point.high)}"
    return _empty("path", {"class": "whisker", "d": path})


def shape(point: Placed, style: int) -> Markup:
    """The mark of one point; a reference has none."""
    if style == REFERENCE:
        return Markup("")
    form = _SHAPES[(style + style // COLOURS) % len(_SHAPES)]
    path = form.format(r=_R, d=2 * _R, t=_R * 1.35, w=_R * 0.45)
    return _empty(
        "path",
        {"class": "point", "d": path, "transform": f"translate({_n(point.x)},{_n(point.y)})"},
    )


def bar(point: Placed, origin: float, thickness: float) -> Markup:
    """From the origin to the point, along x."""
    left, right = sorted((origin, point.x))
    return _empty(
        "rect",
        {
            "class": "bar",
            "x": _n(left),
            "y": _n(point.y - thickness / 2),
            "width": _n(max(right - left, 0.5)),
            "height": _n(thickness),
        },
    )


def rule(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    """A straight line of a class."""
    places = {"x1": _n(x1), "y1": _n(y1), "x2": _n(x2), "y2": _n(y2)}
    return _empty("line", {"class": kind, **places})


def words(text: str, x: float, y: float, kind: str = "") -> Markup:
    """Text at a place; the class says to which side of it."""
    return tag("text", {"class": kind, "x": _n(x), "y": _n(y)}, text)


def _path(points: Sequence[Placed], stepped: bool) -> str:
    between = "H{}V{}" if stepped else "L{},{}"
    first, *others = points
    parts = [between.format(_n(point.x), _n(point.y)) for point in others]
    return f"M{_n(first.x)},{_n(first.y)}{''.join(parts)}"


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _empty(name: str, attributes: Attributes) -> Markup:
    return tag(name, attributes)
