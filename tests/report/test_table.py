"""Tables: what a cell says is never cut, and figures have one form."""

from __future__ import annotations

import pytest

from pointsman.report.table import cell, cell_width, number, text_table, wrapped


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (5, "5"),
        (530984, "530,984"),
        (2000.0, "2,000"),
        (1.85e8, "185,000,000"),
        (1606.9, "1,607"),
        (138.46, "138"),
        (99.97, "100"),
        (3.4046, "3.40"),
        (0.05, "0.05"),
        (0.0415, "0.0415"),
        (-2.345, "-2.35"),
        (1.5e-9, "1.5e-09"),
        (float("inf"), "inf"),
    ],
)
def test_a_figure_has_three_digits_and_loses_none_before_the_point(value, shown):
    assert number(value) == shown


def test_more_digits_are_shown_where_little_decides():
    assert number(0.8001, digits=6) == "0.8001"


def test_no_cell_is_cut_however_long():
    label = "x" * 300
    text = text_table(("policy", "p50"), [(label, "1,234,567"), ("b", "5")])
    lines = text.splitlines()
    assert lines[1] == f"{label}  1,234,567"
    assert lines[2].endswith("          5")
    assert len(lines[2]) == len(lines[1])


def test_a_heading_over_columns_makes_room_for_itself():
    text = text_table(("a", "b", "c"), [("x", "1", "2")], groups=(("", 1), ("long heading", 2)))
    assert text.splitlines() == ["   long heading", "a          b  c", "x          1  2"]


def test_wide_characters_keep_the_columns_straight():
    first, second = text_table(("p",), [("路由",), ("ab",)]).splitlines()[1:]
    assert (first, second) == ("路由", "ab")
    assert cell_width("路由é") == 5
    text = text_table(("p", "n"), [("路由", "1"), ("ab", "2")])
    assert text.splitlines()[1:] == ["路由  1", "ab    2"]


def test_control_characters_do_not_reach_the_terminal():
    assert "\x1b" not in text_table(("a",), [("\x1b[31mred\n",)])
    assert r"\x1b[31mred\n" in text_table(("a",), [("\x1b[31mred\n",)])


def test_prose_is_wrapped_and_no_word_is_cut():
    lines = wrapped("word " * 40 + "y" * 150).splitlines()
    assert all(len(line) <= 100 for line in lines[:-1])
    assert lines[-1] == "y" * 150


def test_a_digest_is_short_in_a_table_only():
    assert cell("workload_sha256", "0123456789abcdef" * 4) == "0123456789ab"
    assert cell("source", "0123456789abcdef") == "0123456789abcdef"
    assert cell("x", None) == "-"
