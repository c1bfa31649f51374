"""A chart in a page, and the table behind it."""

from __future__ import annotations

import json
import re

from pointsman.report.html.charts.chart import BAR, POINTS, Axis, Plot, Point, Rows, Series, Table
from pointsman.report.html.charts.figure import figure, legend, table_of
from pointsman.report.html.charts.marks import REFERENCE, STYLES

LINE = Series("mine", 0, (Point(1.0, 0.1), Point(2.0, 0.30000000000000004)))
PLOT = Plot("waits", Axis("s"), Axis("share"), (LINE,))


def test_the_table_has_every_point_with_every_digit():
    assert table_of(PLOT) == Table(
        ("series", "s", "share"), (("mine", 1.0, 0.1), ("mine", 2.0, 0.30000000000000004))
    )
    assert "<td>0.30000000000000004</td>" in figure(PLOT)


def test_bounds_and_labels_have_columns_where_a_point_has_them():
    series = Series("s", 0, (Point(3.0, 0.0, 2.0, 4.0, label="of ten"),), BAR)
    table = table_of(Rows("t", Axis("ms"), ("row",), (series,)))
    assert table.headings == ("series", "", "ms", "low", "high", "of")
    assert table.rows == (("s", "row", 3.0, 2.0, 4.0, "of ten"),)


def test_a_chart_may_bring_its_own_table():
    plot = Plot("t", Axis("s"), Axis("share"), (LINE,), table=Table(("level",), ((None,),)))
    assert "<td>-</td>" in figure(plot)


def test_a_name_cannot_end_the_script():
    series = Series("</script><script>alert(1)", 0, (Point(1.0, 1.0),))
    text = figure(Plot("t", Axis("s"), Axis("y"), (series,)))
    (facts,) = re.findall(r'<script type="application/json">(.*?)</script>', text)
    assert json.loads(facts)["series"][0][0] == "</script><script>alert(1)"
    assert "<script>" not in text


def test_a_legend_shows_line_and_mark_beside_each_name():
    text = legend([Series("a & b", 0, ()), Series("c", 1, ())])
    assert text.count("<li>") == text.count('class="line"') == text.count('class="point"') == 2
    assert "a &amp; b" in text


def test_a_legend_shows_no_line_where_a_chart_has_points_or_bars():
    points, bars = legend([Series("a", 0, (), POINTS)]), legend([Series("a", 0, (), BAR)])
    assert 'class="point"' in points
    assert 'class="bar"' in bars
    assert 'class="line"' not in points + bars
    assert 'class="point"' not in bars


def test_the_swatch_of_a_reference_is_that_of_no_series():
    def swatch(style):
        return re.sub(r' class="(c[0-7]|reference)"', "", legend([Series("s", style, ())]))

    assert swatch(REFERENCE) not in {swatch(style) for style in range(STYLES)}
