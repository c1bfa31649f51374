"""A repeat that something else disturbed is named."""

from __future__ import annotations

import pytest

from pointsman.bench.odd_repeats import odd_repeats


def test_a_repeat_far_from_the_others_is_named_with_both_figures():
    first, second, third = odd_repeats([50.0, 3150.0, 63.0])
    assert (first, third) == (None, None)
    assert second.startswith(
        "its mean E2E of 3,150 ms is 50 times the median of all repeats, 63 ms: something else"
    )


@pytest.mark.parametrize(
    "means", [[], [50.0], [50.0, 500.0], [50.0, None, 500.0], [50.0, 60.0, 149.0]]
)
def test_two_repeats_tell_nothing_of_each_other_and_alike_ones_are_not_odd(means):
    assert odd_repeats(means) == (None,) * len(means)


def test_a_repeat_may_be_odd_for_being_short():
    assert odd_repeats([10.0, 100.0, 110.0])[0] is not None
