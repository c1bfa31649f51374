"""A chart in a page, and the table behind it."""

from __future__ import annotations

import json
import re

from pointsman.report.html.charts.chart import BAR, Axis, Plot, Point, Rows, Series, Table
from pointsman.report.html.charts.figure import figure, legend, table_of

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
    text = legend([("a & b", 0), ("c", 1)])
    assert text.count("<li>") == 2
    assert "a &amp; b" in text
