"""What the router sees of caches and gauges, and how late, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from pointsman import POLICIES, InputError
from pointsman.policies.policy import (
    CACHED_TOKENS,
    KV_USE,
    RUNNING_REQUESTS,
    WAITING_REQUESTS,
    policy,
)
from pointsman.sim.batching import simulate_fleet
from pointsman.sim.conditions import Conditions
from pointsman.sim.knowledge import Signals
from tests.small_fleets import alike, asked


@policy(rule="Most of the prompt, else in turn.", source="these tests", reasons=("most",))
def most_cached(request, view, parameters):
    best = request.sequence % view.shape[1]
    for i in range(view.shape[1]):
        if view[CACHED_TOKENS, i] > view[CACHED_TOKENS, best]:
            best = i
    return best, 0


@policy(
    rule="Fewest by the gauges, else the first.",
    source="these tests",
    reasons=("fewest",),
    reads=("engine",),
)
def fewest_by_gauges(request, view, parameters):
    best, least = 0, np.inf
    for i in range(view.shape[1]):
        count = view[WAITING_REQUESTS, i] + view[RUNNING_REQUESTS, i]
        if count < least:
            best, least = i, count
    return best, 0


@policy(
    rule="The first one of which less than half is used, else the last.",
    source="these tests",
    reasons=("first",),
    reads=("engine",),
)
def less_than_half(request, view, parameters):
    for i in range(view.shape[1]):
        if view[KV_USE, i] < 0.5:
            return i, 0
    return view.shape[1] - 1, 0


def late(metrics_age_ms: float = 0.0, event_delay_ms: float = 0.0) -> Conditions:
    return Conditions(signals=Signals(metrics_age_ms, event_delay_ms))


def test_blocks_of_a_request_in_flight_count_at_once():
    """The second comes 5 ms after the first, which is computed at 15; in turn it would go to 1."""
    requests = asked((0, 5, 1, (0,)), (5, 5, 1, (0,)))
    run = simulate_fleet(requests, most_cached, alike(2), late(event_delay_ms=1e6))
    assert run.replica.tolist() == [0, 0]


@pytest.mark.parametrize(("asked_ms", "replica"), [(64, 1), (65, 0), (66, 0)])
def test_a_stored_block_is_known_when_its_event_has_come(asked_ms, replica):
    """Stored at 15, known at 65; the first request ended at 15, and brings it no more."""
    requests = asked((0, 5, 1, (0,)), (asked_ms, 5, 1, (0,)))
    run = simulate_fleet(requests, most_cached, alike(2), late(event_delay_ms=50.0))
    assert run.replica.tolist() == [0, replica]


@pytest.mark.parametrize(("asked_ms", "replica"), [(150, 0), (151, 1)])
def test_a_removed_block_is_believed_to_be_there_until_its_event_has_come(asked_ms, replica):
    """Two blocks a replica: the third request takes both of replica 0 at 101."""
    requests = asked((0, 5, 1, (0,)), (100, 8, 1), (101, 8, 1), (asked_ms, 5, 1, (0,)))
    run = simulate_fleet(requests, most_cached, alike(2, kv_blocks=2), late(event_delay_ms=50.0))
    assert run.replica.tolist() == [0, 1, 0, replica]
    assert run.cached_tokens[3] == 0


def test_without_delay_a_removed_block_is_gone_at_once():
    requests = asked((0, 5, 1, (0,)), (100, 8, 1), (101, 8, 1), (102, 5, 1, (0,)))
    run = simulate_fleet(requests, most_cached, alike(2, kv_blocks=2))
    assert run.replica.tolist() == [0, 1, 0, 1]


ROOMY = alike(2, kv_blocks=10_000)
EVERY_TEN_MS = asked(*((10 * k, 4, 900) for k in range(30)))


def test_each_replica_is_read_at_its_own_instants():
    """Replica 0 at 0, 100, 200 with 0, 10, 10 requests; replica 1 at 50, 150, 250 with 0, 5, 15.

    So the requests turn to 1 at 100 and back at 250, not at one instant for all.
    """
    run = simulate_fleet(EVERY_TEN_MS, fewest_by_gauges, ROOMY, late(metrics_age_ms=100.0))
    assert run.replica.tolist() == [0] * 10 + [1] * 15 + [0] * 5


def test_gauges_without_age_are_those_of_now():
    run = simulate_fleet(EVERY_TEN_MS, fewest_by_gauges, ROOMY)
    assert run.replica.tolist() == [0, 1] * 15


def test_a_reading_shows_the_blocks_of_its_own_instant():
    """Replica 0 is read at 700 for the last time before 1300: the 63rd token after the prompt is
    computed, of 67 tokens, 17 of 40 blocks. At 1000, when it is sampled, they are 24."""
    requests = asked((0, 4, 140), (1300, 4, 1))
    run = simulate_fleet(requests, less_than_half, alike(2, kv_blocks=40), late(700.0))
    assert run.replica.tolist() == [0, 0]


def test_requests_that_come_together_spread_however_old_the_gauges_are():
    together = asked(*[(0, 4, 900)] * 8)
    rule = POLICIES["least_requests"]
    run = simulate_fleet(together, rule, ROOMY, late(metrics_age_ms=1e6))
    assert run.replica.tolist() == [0, 1] * 4


def test_signals_that_cannot_be_are_refused():
    with pytest.raises(InputError, match="event_delay_ms is -1"):
        Signals(event_delay_ms=-1.0)
    with pytest.raises(InputError, match="metrics_age_ms is 'old'"):
        Signals(metrics_age_ms="old")
