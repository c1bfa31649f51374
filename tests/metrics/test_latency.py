"""What a request waited for: one definition a quantity."""

from __future__ import annotations

from dataclasses import astuple, replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from pointsman import InputError
from pointsman.metrics.latency import FINISHED, Spread, spread_of
from tests.metrics.offered import FIVE, NAN, answers_of


def test_queue_wait_is_from_arrival_until_an_engine_takes_the_request_up():
    assert_array_equal(FIVE.queue_wait_ms, [10, 30, 0, NAN, NAN])


def test_ttft_and_e2e_count_from_the_arrival():
    assert_array_equal(FIVE.ttft_ms, [50, 80, 200, NAN, NAN])
    assert_array_equal(FIVE.e2e_ms, [90, 80, 500, NAN, NAN])


def test_tpot_is_what_is_left_after_the_first_token_over_the_further_tokens():
    """(90 - 50) / 4 and (500 - 200) / 10; one token has none, and not 0."""
    assert_array_equal(FIVE.tpot_ms, [10, NAN, 30, NAN, NAN])


def test_a_failure_that_came_soon_is_no_short_latency():
    assert spread_of(FIVE.e2e_ms).count == 3


def test_a_spread_is_by_nearest_rank_and_counts_what_is_there():
    values = np.array([NAN, *range(20, 0, -1), NAN], dtype=float)
    assert astuple(spread_of(values)) == (20, 10.5, 10.0, 18.0, 19.0, 20.0, 20.0)


def test_nothing_has_a_spread_of_no_figures():
    assert spread_of(np.array([NAN])) == Spread() == spread_of(np.array([]))
    assert Spread().count == 0
    assert Spread().p95 is None


def test_columns_of_other_lengths_are_refused_by_name():
    with pytest.raises(InputError, match=r"shape of prompt_tokens is \(1,\); expected \(5,\)"):
        replace(FIVE, prompt_tokens=np.array([7]))


def test_a_status_that_is_none_of_the_three_is_refused():
    with pytest.raises(InputError, match="status is 3; expected 0, 1 or 2: finished, failed"):
        answers_of((0, 3, 0.0, 0.0, 1.0, 2.0, 1, 2, 0, 0))


def test_an_engine_that_says_nothing_of_its_queue_leaves_the_wait_absent_and_the_rest_there():
    answers = answers_of((0, FINISHED, 0.0, NAN, 4.0, 10.0, 1, 4, 0, 0))
    assert spread_of(answers.queue_wait_ms) == Spread()
    assert_array_equal(answers.tpot_ms, [2.0])
