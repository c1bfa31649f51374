"""Places on an axis."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.report.html.charts.chart import Axis
from pointsman.report.html.charts.scale import scale_for, tick_text

LINEAR, LOG = Axis("ms"), Axis("ms", log=True)
VALUES = st.lists(st.floats(-1e9, 1e9), max_size=6)


def test_a_linear_axis_begins_at_0_and_ends_at_a_round_value():
    scale = scale_for(LINEAR, [3.0, 47.0], 0.0, 100.0)
    assert (scale.low, scale.high) == (0.0, 50.0)
    assert scale.ticks == [0, 10, 20, 30, 40, 50]
    assert scale.at(25.0) == 50.0


def test_a_linear_axis_holds_negative_values():
    scale = scale_for(LINEAR, [-12.0, 3.0], 0.0, 100.0)
    assert (scale.low, scale.high) == (-15.0, 5.0)


def test_an_axis_runs_from_its_beginning_to_its_end_whichever_is_larger():
    scale = scale_for(LINEAR, [10.0], 200.0, 20.0)
    assert (scale.at(0.0), scale.at(10.0)) == (200.0, 20.0)


def test_a_logarithmic_axis_has_equal_factors_at_equal_lengths():
    scale = scale_for(LOG, [1.0, 100.0], 0.0, 100.0)
    assert scale.at(10.0) == pytest.approx(50.0)
    assert scale.ticks == pytest.approx([1, 2, 5, 10, 20, 50, 100])


@pytest.mark.parametrize("axis", [LINEAR, LOG])
@pytest.mark.parametrize("value", [5e-324, -5e-324, 1.7e308, -1.7e308])
def test_values_at_the_ends_of_what_a_number_holds_have_a_place(axis, value):
    scale = scale_for(axis, [value, 1.0, -value], 0.0, 100.0)
    assert all(0.0 <= scale.at(each) <= 100.0 for each in (value, -value, 1.0))
    assert scale.ticks


def test_many_decades_have_a_tick_each():
    assert scale_for(LOG, [1.0, 10_000.0], 0.0, 1.0).ticks == pytest.approx([1, 10, 100, 1e3, 1e4])


def test_a_time_of_0_stands_at_the_beginning_of_a_logarithmic_axis():
    scale = scale_for(LOG, [0.0, 2.0, 2000.0], 5.0, 100.0)
    assert scale.at(0.0) == 5.0


@pytest.mark.parametrize("nothing", [0.0, -3.0])
def test_what_a_logarithm_does_not_have_stands_apart_from_what_it_has(nothing):
    # From 1, the round value below half of 2, to 200.
    scale = scale_for(LOG, [nothing, 2.0, 200.0], 0.0, 100.0)
    assert (scale.low, scale.high) == pytest.approx((1.0, 200.0))
    assert scale_for(LOG, [2.0, 200.0], 0.0, 100.0).low == pytest.approx(2.0)


@pytest.mark.parametrize("log", [False, True])
def test_values_too_small_to_be_told_apart_count_as_0(log):
    scale = scale_for(Axis("ms", log=log), [5e-324, 1e-310], 0.0, 10.0)
    assert (scale.low, scale.high) == (0.0, 1.0)


def test_values_that_lie_near_one_another_need_no_logarithm():
    assert not scale_for(LOG, [40.0, 60.0], 0.0, 1.0).log


def test_no_values_still_make_an_axis():
    scale = scale_for(LOG, [], 0.0, 10.0)
    assert (scale.low, scale.high) == (0.0, 1.0)


def test_ends_that_were_asked_for_are_on_the_axis():
    scale = scale_for(Axis("share", high=1.0), [0.2], 0.0, 1.0)
    assert scale.high == 1.0


@given(VALUES, st.booleans())
def test_every_value_stands_between_the_ends_and_few_ticks_do_too(values, log):
    scale = scale_for(Axis("any", log=log), values, 10.0, 300.0)
    assert all(10.0 <= scale.at(value) <= 300.0 for value in [*values, *scale.ticks])
    assert 2 <= len(scale.ticks) <= 12


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "0.5"), (1000.0, "1000"), (20_000.0, "20k"), (1.5e6, "1.5M"), (3e12, "3T"), (-0.0, "0")],
)
def test_ticks_are_short(value, text):
    assert tick_text(value) == text


def test_shares_are_in_percent():
    assert tick_text(0.25, percent=True) == "25%"


def test_what_a_sum_is_beyond_a_tick_by_rounding_takes_no_further_tick():
    whole = 1.0 + 2.0**-52
    assert whole > 1.0
    assert scale_for(Axis("x", high=1.0), [whole], 0.0, 100.0).high == pytest.approx(1.0)
