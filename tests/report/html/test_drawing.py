"""Charts as SVG, their places worked out by hand.

The paper of a plot goes from 46 to 346 across and from 202 up to 26.
"""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from pointsman.report.html.charts.chart import (
    BAR,
    LINE,
    POINTS,
    STEPS,
    Axis,
    Plot,
    Point,
    Reference,
    Rows,
    Series,
)
from pointsman.report.html.charts.drawing import draw_plot, draw_rows, fitting

AXIS = Axis("x", high=10.0)
CORNERS = (Point(0.0, 0.0), Point(10.0, 10.0))


def plotted(*points, mark=LINE, references=()):
    series = Series("mine", 0, points, mark)
    return draw_plot(Plot("title", AXIS, Axis("y", high=10.0), (series,), references))


def found(drawing, name, kind):
    tree = ElementTree.fromstring(drawing.svg)
    return [each.attrib for each in tree.iter(name) if each.get("class") == kind]


def test_a_line_goes_from_corner_to_corner():
    assert found(plotted(*CORNERS), "path", "line")[0]["d"] == "M46,202L346,26"


def test_steps_are_level_until_the_next_point():
    assert found(plotted(*CORNERS, mark=STEPS), "path", "line")[0]["d"] == "M46,202H346V26"


def test_a_band_lies_between_the_bounds():
    points = (Point(0.0, 5.0, 0.0, 10.0), Point(10.0, 5.0, 2.5, 7.5))
    assert found(plotted(*points), "path", "band")[0]["d"] == "M46,202L346,158L346,70L46,26z"


def test_a_point_has_a_whisker_from_bound_to_bound():
    drawing = plotted(Point(5.0, 5.0, 0.0, 10.0), mark=POINTS)
    assert found(drawing, "path", "whisker")[0]["d"] == "M196,202V26"
    assert found(drawing, "path", "point")[0]["transform"] == "translate(196,114)"


def test_a_reference_crosses_the_paper_at_its_value():
    drawing = plotted(*CORNERS, references=(Reference(5.0, "limit"),))
    line = found(drawing, "line", "reference")[0]
    assert (line["x1"], line["y1"], line["x2"], line["y2"]) == ("46", "114", "346", "114")


def test_an_axis_reaches_to_a_reference_beyond_all_values():
    drawing = plotted(*CORNERS, references=(Reference(20.0, "limit"),))
    assert found(drawing, "line", "reference")[0]["y1"] == "26"


def test_spots_have_the_places_and_the_words_of_every_point():
    ((name, style, spots),) = plotted(Point(10.0, 2.5, 1.0, 4.0, label="four"), mark=POINTS).spots
    assert (name, style) == ("mine", 0)
    assert spots == ((346.0, 158.0, "10", "2.5", "four, 1 to 4"),)


def test_a_chart_without_points_is_drawn():
    assert found(plotted(), "line", "axis")


def rows(*points, mark=BAR):
    shown = Rows(
        "title", Axis("ms", high=10.0), ("first", "second"), (Series("s", 1, points, mark),)
    )
    return draw_rows(shown)


def test_a_bar_begins_at_0_and_ends_at_its_value():
    # Across from 10 to 346; the row's name takes 15, half a lane 6.5, half a bar 4.5.
    bar = found(rows(Point(5.0, 0.0)), "rect", "bar")[0]
    assert (bar["x"], bar["width"], bar["y"]) == ("10", "168", "43")


def test_rows_stand_below_one_another():
    first, second = found(rows(Point(5.0, 0.0), Point(5.0, 1.0)), "rect", "bar")
    assert float(second["y"]) - float(first["y"]) == 33.0  # name 15, lane 13, gap 5


def test_a_negative_bar_ends_at_0():
    shown = Rows("title", Axis("x"), ("a",), (Series("s", 0, (Point(-10.0, 0.0),), BAR),))
    bar = found(draw_rows(shown), "rect", "bar")[0]
    assert (bar["x"], bar["width"]) == ("10", "336")


def test_a_row_says_whose_value_it_is():
    ((_, _, spots),) = rows(Point(5.0, 1.0), mark=POINTS).spots
    assert spots[0][2:] == ("5", "second", "")


@pytest.mark.parametrize("mark", [LINE, STEPS, POINTS])
@pytest.mark.parametrize("style", [0, 7, 8, 23, 99])
def test_every_style_can_be_drawn(style, mark):
    plot = Plot("t", AXIS, AXIS, (Series("s", style, CORNERS, mark),))
    ElementTree.fromstring(draw_plot(plot).svg)


def test_names_are_text_and_no_markup():
    plot = Plot("<b>&", Axis("<i>"), AXIS, (Series("s", 0, CORNERS),))
    svg = draw_plot(plot).svg
    assert "<b>" not in svg
    assert "<i>" not in svg


def test_the_keyboard_enters_a_drawing_and_a_screen_reader_hears_its_title():
    root = ElementTree.fromstring(plotted(*CORNERS).svg)
    assert (root.get("role"), root.get("tabindex")) == ("img", "0")
    assert root.get("aria-label").startswith("title.")


def test_a_name_that_does_not_fit_keeps_both_ends():
    """54 columns: 26 of each end and a dot for the rest; of a wide character two each."""
    long = "a" * 60 + "(slack_ms=5)"
    assert fitting(long) == "a" * 26 + "\u2026" + "a" * 14 + "(slack_ms=5)"
    assert fitting("\u8acb" * 30) == "\u8acb" * 13 + "\u2026" + "\u8acb" * 13
    assert fitting("a" * 54) == "a" * 54


def test_a_row_tells_the_whole_of_a_name_that_does_not_fit():
    name = "a" * 300
    rows = Rows("t", Axis("ms"), (name,), (Series("s", 0, (Point(1.0, 0.0),), BAR),))
    drawing = draw_rows(rows)
    assert name not in drawing.svg
    assert drawing.spots[0][2][0][3] == name
