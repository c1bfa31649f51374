"""Rules that price a hit in milliseconds, on views worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from pointsman import POLICIES
from pointsman.policies.policy import CACHED_TOKENS, FREE_AT_MS, WORK_MS, view_for
from tests.policies.views import choice_of, choose

# earliest_first_token: wait + work + an iteration of those that decode there.


def test_earliest_first_token_adds_wait_work_and_an_iteration():
    """50 + 10 + 6 = 66, 0 + 60 + 7 = 67, 20 + 30 + 15 = 65."""
    given = {"free_at": (50, 0, 20), "work": (10, 60, 30), "iteration": (6, 7, 15)}
    assert choose("earliest_first_token", **given)[0] == 2


@pytest.mark.parametrize(("work_ms", "expected"), [(39, 0), (40, 0), (41, 1)])
def test_earliest_first_token_waits_for_a_prefix_as_long_as_that_is_sooner(work_ms, expected):
    """60 ms of waiting and the rest of the prompt against 100 ms for all of it, at once."""
    given = {"free_at": (60, 0), "work": (work_ms, 100), "iteration": (6, 6)}
    assert choose("earliest_first_token", **given)[0] == expected


def test_earliest_first_token_takes_the_lowest_index_among_equals():
    given = {"free_at": (30, 10, 0), "work": (0, 20, 30), "iteration": (6, 6, 6)}
    assert choose("earliest_first_token", **given)[0] == 0


def test_earliest_first_token_waits_for_nobody_who_is_free_already():
    view = view_for(POLICIES["earliest_first_token"].reads, 2)
    view[FREE_AT_MS] = (100.0, 900.0)
    view[WORK_MS] = (20.0, 10.0)
    assert choice_of("earliest_first_token", view, now_ms=1000.0)[0] == 1


# locality_auto: the session's home if wait + work there is no more than at the shortest wait; else
# whoever holds more of the prompt than that one, and has the least wait + work.


def auto(free_at, cached, work, home=-1):
    view = view_for(POLICIES["locality_auto"].reads, len(free_at))
    view[FREE_AT_MS], view[CACHED_TOKENS], view[WORK_MS] = free_at, cached, work
    assert not np.isnan(view[[FREE_AT_MS, CACHED_TOKENS, WORK_MS]]).any()
    return choice_of("locality_auto", view, home=home)


@pytest.mark.parametrize(
    ("wait_ms", "expected"),
    [(79, (0, "prefix_locality")), (80, (0, "prefix_locality")), (81, (1, "queue_fallback"))],
)
def test_locality_auto_waits_for_a_prefix_as_long_as_it_saves(wait_ms, expected):
    """All of the prompt takes 100 ms, the rest behind the prefix 20: it is worth 80 ms."""
    assert auto((wait_ms, 0), (64, 0), (20, 100)) == expected


def test_locality_auto_takes_the_holder_that_gains_most():
    """100 at the shortest wait; holders: 60 + 30, 50 + 10 and 70 + 5."""
    free_at, cached, work = (60, 0, 50, 70), (32, 0, 64, 80), (30, 100, 10, 5)
    assert auto(free_at, cached, work) == (2, "prefix_locality")


def test_locality_auto_prefers_the_home_though_another_one_gains_more():
    free_at, cached, work = (60, 0, 30), (64, 0, 32), (10, 100, 65)
    assert auto(free_at, cached, work, home=2) == (2, "sticky_session")
    assert auto(free_at, cached, work, home=-1) == (0, "prefix_locality")


def test_locality_auto_leaves_a_home_that_costs_more_than_it_saves():
    assert auto((0, 90), (0, 64), (100, 20), home=1) == (0, "queue_fallback")
    assert auto((0, 80), (0, 64), (100, 20), home=1) == (1, "sticky_session")


def test_locality_auto_looks_past_those_that_hold_no_more_than_the_shortest_wait():
    """The other one is faster, not better filled: 10 + 40 against 0 + 60."""
    assert auto((0, 10), (64, 64), (60, 40)) == (0, "prefix_locality")


def test_locality_auto_has_a_slack_of_its_own_for_every_replica():
    """Replica 0 saves 20 ms and costs 30; replica 2 saves 90 and costs 80."""
    assert auto((30, 0, 80), (16, 0, 90), (80, 100, 10)) == (2, "prefix_locality")
