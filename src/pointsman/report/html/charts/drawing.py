"""Charts as SVG, with the places of their values for whoever points at them.

``Drawing.spots`` is what the page's script reads: a series' name and style, and of each point its
place and its words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pointsman.report.html.charts.chart import (
    BAR,
    PART,
    POINTS,
    STEPS,
    Axis,
    Plot,
    Point,
    Rows,
    Series,
)
from pointsman.report.html.charts.frame import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Paper,
    references,
    svg,
    x_axis,
    y_axis,
)
from pointsman.report.html.charts.marks import (
    COLOURS,
    Placed,
    band,
    bar,
    line,
    rule,
    shape,
    style_class,
    whisker,
    words,
)
from pointsman.report.html.charts.scale import Scale, scale_for
from pointsman.report.html.markup import Markup, joined, tag
from pointsman.report.table import cell_width, number

_HEIGHT = 240.0
_DIGITS = 4
_MOST_MARKED = 15  # points of a line that have a mark each; of more points so many:
_MARKS = 8
_LONGEST_NAME = 54  # columns of a row's name; its spots and the table have all of it
_NAME, _LANE, _GAP, _THICKNESS = 15.0, 13.0, 5.0, 9.0  # of a row: its name, a series, below

Spot = tuple[float, float, str, str, str]


@dataclass(frozen=True, slots=True)
class Drawing:
    """The picture, and its values: by series a name, a style and the spots."""

    svg: Markup
    spots: tuple[tuple[str, int, tuple[Spot, ...]], ...]


def draw_plot(plot: Plot) -> Drawing:
    """Two axes and every series between them."""
    paper = Paper(LEFT, WIDTH - RIGHT, TOP, _HEIGHT - BOTTOM)
    lines_x = [each.value for each in plot.references if each.across == "x"]
    lines_y = [each.value for each in plot.references if each.across == "y"]
    ends_x = [each.ends_at for each in plot.series if each.ends_at is not None]
    values_x = [*_values(plot.series, "x"), *ends_x, *lines_x]
    x = scale_for(plot.x, values_x, paper.left, paper.right)
    y = scale_for(plot.y, [*_bounds(plot.series, "y"), *lines_y], paper.bottom, paper.top)
    placed = [[_placed(point, x, y) for point in each.points] for each in plot.series]
    parts = [*x_axis(plot.x, x, paper), *y_axis(plot.y, y, paper)]
    parts += [_series(each, at, x) for each, at in zip(plot.series, placed, strict=True) if at]
    parts += references(plot.references, x, y, paper)
    spots = tuple(
        (each.name, each.style, tuple(_spots(each, at, (plot.x, plot.y))))
        for each, at in zip(plot.series, placed, strict=True)
    )
    return Drawing(svg(plot.title, _HEIGHT, parts), spots)


def draw_rows(rows: Rows) -> Drawing:
    """A row a name, a lane in it a series, or one of all their parts."""
    is_whole = any(each.mark == PART for each in rows.series)
    pitch = _NAME + _LANE * (1 if is_whole else len(rows.series)) + _GAP
    height = TOP + pitch * len(rows.names) + BOTTOM
    paper = Paper(10.0, WIDTH - RIGHT, TOP - 10.0, height - BOTTOM)
    lines = [each.value for each in rows.references]
    series = _one_after_another(rows.series) if is_whole else rows.series
    values = [*_values(series, "x"), *_bounds(series, ""), *lines]
    x = scale_for(rows.x, values, paper.left, paper.right)
    parts = [*x_axis(rows.x, x, paper)]
    spots = []
    for lane, (each, told) in enumerate(zip(series, rows.series, strict=True)):
        first = TOP + _NAME + _LANE * (0.5 if is_whole else lane + 0.5)
        at = [_in_row(point, x, first, pitch) for point in each.points]
        parts.append(_lane(each, at, x))
        spots.append((told.name, told.style, tuple(_row_spots(told, at, rows))))
    parts += references(rows.references, x, None, paper)
    parts += [
        words(fitting(name), paper.left, TOP + pitch * k + _NAME - 5, "name")
        for k, name in enumerate(rows.names)
    ]
    return Drawing(svg(rows.title, height, parts), tuple(spots))


def _one_after_another(series: Sequence[Series]) -> list[Series]:
    """The same with each part's begin and end as its bounds, and its middle as its place."""
    ends: dict[float, float] = {}
    placed = []
    for each in series:
        points = []
        for point in each.points:
            begin = ends.get(point.y, 0.0)
            ends[point.y] = begin + point.x
            points.append(Point(begin + point.x / 2, point.y, begin, ends[point.y]))
        placed.append(replace(each, points=tuple(points)))
    return placed


def fitting(name: str) -> str:
    """A name that fits the paper: of a longer one both ends, for what tells names apart is often
    at the end."""
    if cell_width(name) <= _LONGEST_NAME:
        return name
    half = (_LONGEST_NAME - 1) // 2
    head, tail = name[:half], name[-half:]
    while cell_width(head) > half:
        head = head[:-1]
    while cell_width(tail) > half:
        tail = tail[1:]
    return f"{head}\u2026{tail}"


def _values(series: Iterable[Series], name: str) -> Iterator[float]:
    return (getattr(point, name) for each in series for point in each.points)


def _bounds(series: Sequence[Series], name: str) -> Iterator[float]:
    """The bounds of intervals, and the values themselves where they are on axis ``name``."""
    for each in series:
        for point in each.points:
            yield from (end for end in (point.low, point.high) if end is not None)
            if name:
                yield getattr(point, name)


def _placed(point: Point, x: Scale, y: Scale) -> Placed:
    low = None if point.low is None else y.at(point.low)
    high = None if point.high is None else y.at(point.high)
    return Placed(x.at(point.x), y.at(point.y), low, high)


def _in_row(point: Point, x: Scale, first: float, pitch: float) -> Placed:
    low = None if point.low is None else x.at(point.low)
    high = None if point.high is None else x.at(point.high)
    return Placed(x.at(point.x), first + pitch * point.y, low, high)


def _series(series: Series, at: Sequence[Placed], x: Scale) -> Markup:
    if series.mark == POINTS:
        marks = [joined((whisker(each, upright=True), shape(each, series.style))) for each in at]
    else:
        end = [] if series.ends_at is None else [replace(at[-1], x=x.at(series.ends_at))]
        marks = [band(at), line([*at, *end], series.style, series.mark == STEPS)]
        marks += [shape(each, series.style) for each in _marked(at, series.style)]
    return tag("g", {"class": style_class(series.style)}, *marks)


def _marked(at: Sequence[Placed], style: int) -> Sequence[Placed]:
    """All points; of a long line some at even places, other ones where lines run together."""
    if len(at) <= _MOST_MARKED:
        return at
    shift = (style % COLOURS + 0.5) / COLOURS
    return [at[int((k + shift) * len(at) / _MARKS)] for k in range(_MARKS)]


def _lane(series: Series, at: Sequence[Placed], x: Scale) -> Markup:
    origin = x.at(0.0)
    if series.mark == PART:
        ends = [(replace(each, x=each.high or each.x), each.low or each.x) for each in at]
        marks = [bar(end, begin, _THICKNESS) for end, begin in ends]
        return tag("g", {"class": style_class(series.style)}, *marks)
    if series.mark == BAR:
        marks = [bar(each, origin, _THICKNESS) for each in at]
    else:
        left, right = x.begin, x.end
        marks = [rule(left, y, right, y, "lane") for y in sorted({each.y for each in at})]
        marks += [shape(each, series.style) for each in at]
    marks += [whisker(each, upright=False) for each in at]
    return tag("g", {"class": style_class(series.style)}, *marks)


def _spots(series: Series, at: Sequence[Placed], axes: tuple[Axis, Axis]) -> Iterator[Spot]:
    for point, place in zip(series.points, at, strict=True):
        texts = _text(point.x, axes[0]), _text(point.y, axes[1])
        yield (round(place.x, 1), round(place.y, 1), *texts, _more(point, axes[1]))


def _row_spots(series: Series, at: Sequence[Placed], rows: Rows) -> Iterator[Spot]:
    for point, place in zip(series.points, at, strict=True):
        name = rows.names[int(point.y)]
        more = _more(point, rows.x)
        yield round(place.x, 1), round(place.y, 1), _text(point.x, rows.x), name, more


def _more(point: Point, axis: Axis) -> str:
    parts = [point.label] if point.label else []
    if point.low is not None and point.high is not None:
        parts.append(f"{_text(point.low, axis)} to {_text(point.high, axis)}")
    return ", ".join(parts)


def _text(value: float, axis: Axis) -> str:
    return f"{100 * value:.4g}%" if axis.percent else number(value, _DIGITS)
