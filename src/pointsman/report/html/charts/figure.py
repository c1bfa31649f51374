"""A chart in a page: title, picture, values for pointing, and the table behind it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pointsman.report.html.charts.chart import BAR, PART, POINTS, Chart, Plot, Rows, Series, Table
from pointsman.report.html.charts.drawing import Drawing, draw_plot, draw_rows
from pointsman.report.html.charts.marks import Placed, bar, line, shape, style_class
from pointsman.report.html.markup import Markup, tag


def figure(chart: Chart) -> Markup:
    """Everything of one chart."""
    drawing = draw_plot(chart) if isinstance(chart, Plot) else draw_rows(chart)
    table = table_of(chart) if chart.table is None else chart.table
    return tag(
        "figure",
        {"class": "chart"},
        tag("figcaption", None, chart.title),
        drawing.svg,
        _spots(chart, drawing),
        tag("details", None, tag("summary", None, "Data"), table_markup(table, chart.title)),
    )


def legend(series: Sequence[Series]) -> Markup:
    """Names beside their lines, marks or bars."""
    return tag(
        "ul", {"class": "legend"}, *(tag("li", None, _swatch(each), each.name) for each in series)
    )


def table_of(chart: Chart) -> Table:
    """The points of a chart, a row each."""
    series = chart.series
    has_bounds = any(point.low is not None for each in series for point in each.points)
    has_labels = any(point.label for each in series for point in each.points)
    headings = ("series", *_axes(chart), *(("low", "high") if has_bounds else ()))
    rows = []
    for each in series:
        for point in each.points:
            first: str | float = point.x
            if isinstance(chart, Rows):
                values: tuple[str | float | None, ...] = (chart.names[int(point.y)], first)
            else:
                values = (first, point.y)
            bounds = (point.low, point.high) if has_bounds else ()
            rows.append((each.name, *values, *bounds, *((point.label,) if has_labels else ())))
    return Table((*headings, *(("of",) if has_labels else ())), tuple(rows))


def table_markup(table: Table, label: str) -> Markup:
    """A table with every digit; wider than the screen it scrolls by itself."""
    head = tag("tr", None, *(tag("th", {"scope": "col"}, name) for name in table.headings))
    body = [tag("tr", None, *map(_cell, row)) for row in table.rows]
    whole = tag("table", None, tag("thead", None, head), tag("tbody", None, *body))
    return scrolling(whole, label)


def scrolling(content: Markup, label: str) -> Markup:
    """A region that scrolls sideways, by keyboard too."""
    attributes = {"class": "scroll", "tabindex": "0", "role": "region", "aria-label": label}
    return tag("div", attributes, content)


def _axes(chart: Chart) -> tuple[str, str]:
    return ("", chart.x.title) if isinstance(chart, Rows) else (chart.x.title, chart.y.title)


def _cell(value: str | float | None) -> Markup:
    if value is None:
        return tag("td", None, "-")
    if isinstance(value, str):
        return tag("td", {"class": "text"}, value)
    return tag("td", None, json.dumps(value))


def _swatch(series: Series) -> Markup:
    """What the chart has of it."""
    style = series.style
    if series.mark in (BAR, PART):
        parts = [bar(Placed(30, 7), 2, 9)]
    else:
        parts = [] if series.mark == POINTS else [line((Placed(2, 7), Placed(30, 7)), style)]
        parts.append(shape(Placed(16, 7), style))
    drawn = tag("g", {"class": style_class(style)}, *parts)
    return tag("svg", {"viewBox": "0 0 32 14", "class": "swatch", "aria-hidden": "true"}, drawn)


def _spots(chart: Chart, drawing: Drawing) -> Markup:
    """For the script; ``</`` would end it early."""
    facts = {"axes": _axes(chart), "series": drawing.spots}
    text = json.dumps(facts, separators=(",", ":")).replace("<", "\\u003c")
    return tag("script", {"type": "application/json"}, Markup(text))
