"""Charts as SVG, their places worked out by hand.

The paper of a plot goes from 46 to 346 across and from 202 up to 26.
"""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from pointsman.report.html.charts.chart import (
    BAR,
    LINE,
    PART,
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
from pointsman.report.html.charts.marks import REFERENCE

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


def test_steps_that_say_where_they_end_have_a_last_one_as_wide():
    series = Series("mine", 0, (Point(0.0, 0.0), Point(5.0, 10.0)), STEPS, ends_at=10.0)
    drawing = draw_plot(Plot("title", AXIS, Axis("y", high=10.0), (series,)))
    assert found(drawing, "path", "line")[0]["d"] == "M46,202H196V26H346V26"
    assert [spot[:2] for spot in drawing.spots[0][2]] == [(46.0, 202.0), (196.0, 26.0)]


def test_an_axis_reaches_to_where_steps_end():
    series = Series("mine", 0, (Point(0.0, 1.0), Point(5.0, 1.0)), STEPS, ends_at=10.0)
    drawing = draw_plot(Plot("title", Axis("x"), Axis("y"), (series,)))
    assert found(drawing, "path", "line")[0]["d"].endswith("H346V26")


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


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_a_reference_that_a_logarithm_does_not_have_stands_at_the_beginning(value):
    shown = Plot(
        "title",
        Axis("x", log=True),
        Axis("y", log=True),
        (Series("mine", 0, (Point(1.0, 1.0), Point(10.0, 10.0)), POINTS),),
        (Reference(value, "none", across="x"), Reference(value, "none")),
    )
    upright, level = found(draw_plot(shown), "line", "reference")
    assert (upright["x1"], upright["x2"]) == ("46", "46")
    assert (level["y1"], level["y2"]) == ("202", "202")


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


def test_parts_lie_in_one_lane_each_from_where_the_one_before_ended():
    """Across from 10 to 346 are 10 ms; a row without the first part begins with the second."""
    series = (
        Series("wait", 0, (Point(2.5, 0.0, label="a quarter"),), PART),
        Series("work", 1, (Point(5.0, 0.0), Point(5.0, 1.0)), PART),
    )
    drawing = draw_rows(Rows("title", Axis("ms", high=10.0), ("first", "second"), series))
    bars = found(drawing, "rect", "bar")
    assert [(bar["x"], bar["width"]) for bar in bars] == [
        *(("10", "84"), ("94", "168"), ("10", "168"))
    ]
    assert bars[0]["y"] == bars[1]["y"]
    assert float(bars[2]["y"]) - float(bars[1]["y"]) == 33.0
    # Pointed at in its middle, a part says its own size.
    assert drawing.spots[0][2] == ((52.0, 47.5, "2.5", "first", "a quarter"),)
    assert drawing.spots[1][2][0][:3] == (178.0, 47.5, "5")


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


def looks(style, mark, count):
    """Of a series its colour's class, and its dash and shape."""
    points = tuple(Point(k / 10, k / 10) for k in range(count))
    drawing = draw_plot(Plot("t", AXIS, AXIS, (Series("s", style, points, mark),)))
    lines, marks = found(drawing, "path", "line"), found(drawing, "path", "point")
    (group,) = ElementTree.fromstring(drawing.svg).iter("g")
    dashes = {each.get("stroke-dasharray", "") for each in lines}
    return group.get("class"), (*dashes, *{each["d"] for each in marks})


@pytest.mark.parametrize("mark", [LINE, STEPS])
@pytest.mark.parametrize("count", [2, 110])
def test_thirty_two_lines_differ_without_their_colours(mark, count):
    assert len({looks(style, mark, count)[1] for style in range(32)}) == 32


def test_points_of_eight_series_differ_without_their_colours_and_of_thirty_two_with_them():
    seen = [looks(style, POINTS, 2) for style in range(32)]
    assert len({shape for _, shape in seen[:8]}) == 8
    assert len(set(seen)) == 32


@pytest.mark.parametrize("mark", [LINE, STEPS])
def test_a_reference_looks_like_no_series_and_has_no_marks(mark):
    colour, (dash,) = looks(REFERENCE, mark, 2)
    assert colour not in {looks(style, mark, 2)[0] for style in range(32)}
    assert dash not in {looks(style, mark, 2)[1][0] for style in range(32)}


def test_a_long_line_has_a_mark_at_every_eighth_of_its_points():
    # Of 16 points every second one, and of a neighbour in style, half a round on, the others.
    def marked(style):
        points = tuple(Point(k * 10 / 15, 0.0) for k in range(16))
        drawing = draw_plot(Plot("t", AXIS, AXIS, (Series("s", style, points),)))
        return [each["transform"] for each in found(drawing, "path", "point")]

    assert marked(0) == [f"translate({46 + 20 * k},202)" for k in range(0, 16, 2)]
    assert marked(4) == [f"translate({46 + 20 * k},202)" for k in range(1, 16, 2)]


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
