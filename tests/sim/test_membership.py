"""Replicas that die, slow down and join, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pointsman import POLICIES, InputError
from pointsman.sim.batching import BatchingFleet, simulate_fleet
from pointsman.sim.batching_state import (
    CAN_NEVER_FIT,
    DIED_MID_STREAM,
    FAILED,
    FINISHED,
    NO_REPLICA,
    REJECTED,
    TRIES_USED,
)
from pointsman.sim.conditions import Change, Conditions
from tests.small_fleets import ENGINE, alike, asked, split

TURNS = POLICIES["round_robin"]


def after(*changes: tuple, most_tries: int = 2) -> Conditions:
    return Conditions(changes=[Change(*change) for change in changes], most_tries=most_tries)


# Replica 0 gets the first and the third one.
THREE = asked((0, 4, 10), (1, 4, 10), (15, 4, 1))


def test_who_has_part_of_an_answer_fails_and_the_others_are_sent_elsewhere():
    """At 20 the first one has a token, since 14; the third waits, and goes to replica 1, which is
    busy to 26 and then takes 10 + 4 + 1."""
    run = simulate_fleet(THREE, TURNS, alike(2), after((20.0, 0, "dies")))
    assert run.status.tolist() == [FAILED, FINISHED, FINISHED]
    assert run.prefills["cause"].tolist() == [DIED_MID_STREAM, 0, 0]
    assert run.prefills["tries"].tolist() == [1, 1, 2]
    assert run.replica.tolist() == [-1, 1, 1]
    assert run.prefills["scheduled_ms"][2] == 26.0
    assert run.first_token_ms[2] == 41.0


def test_tries_are_used_up():
    run = simulate_fleet(THREE, TURNS, alike(2), after((20.0, 0, "dies"), most_tries=1))
    assert run.status.tolist() == [FAILED, FINISHED, FAILED]
    assert run.prefills["cause"].tolist() == [DIED_MID_STREAM, 0, TRIES_USED]


@pytest.mark.parametrize(
    ("changes", "cached"), [((), 4), (((100, 0, "dies"), (200, 0, "joins")), 0)]
)
def test_a_replica_that_comes_back_has_an_empty_cache(changes, cached):
    requests = asked((0, 5, 1, (7,)), (300, 5, 1, (7,)))
    run = simulate_fleet(requests, TURNS, alike(1), after(*changes))
    assert run.cached_tokens.tolist() == [0, cached]


def test_a_slow_replica_takes_its_time_from_the_next_iteration_on():
    """Iterations 0-14-25-36; at 30 it slows down: the last one takes 22."""
    run = simulate_fleet(asked((0, 4, 4)), TURNS, alike(1), after((30, 0, "slows", 2.0)))
    assert run.finish_ms.tolist() == [58.0]


def test_a_factor_is_of_the_nominal_time_and_not_of_the_last_one():
    changes = after((5, 0, "slows", 4.0), (30, 0, "slows", 2.0))
    # 0-14, then 44 to 58, then 22 each
    run = simulate_fleet(asked((0, 4, 4)), TURNS, alike(1), changes)
    assert run.finish_ms.tolist() == [102.0]


def test_a_replica_that_joins_is_no_candidate_before():
    requests = asked(*[(50 * k, 4, 1) for k in range(6)])
    run = simulate_fleet(requests, TURNS, alike(2), after((120, 1, "joins")))
    assert run.replica.tolist() == [0, 0, 0, 1, 0, 1]


def test_while_nobody_lives_requests_fail_and_say_so():
    requests = asked((0, 4, 1), (150, 4, 1), (250, 4, 1))
    changes = after((100, 0, "dies"), (110, 1, "dies"), (200, 1, "joins"))
    run = simulate_fleet(requests, TURNS, alike(2), changes)
    assert run.status.tolist() == [FINISHED, FAILED, FINISHED]
    assert run.prefills["cause"].tolist() == [0, NO_REPLICA, 0]


def test_what_only_a_dead_replica_could_hold_fails_and_what_fits_nowhere_is_rejected():
    fleet = BatchingFleet((replace(ENGINE, kv_blocks=2), replace(ENGINE, kv_blocks=10)))
    requests = asked((0, 20, 1), (100, 20, 1), (100, 80, 1), (100, 4, 1))
    run = simulate_fleet(requests, TURNS, fleet, after((50, 1, "dies")))
    assert run.status.tolist() == [FINISHED, FAILED, REJECTED, FINISHED]
    assert run.prefills["cause"].tolist() == [0, NO_REPLICA, CAN_NEVER_FIT, 0]


def test_a_decode_replica_that_is_gone_when_the_prefill_ends_costs_a_new_try():
    """Prefilled at 18, to come at 23; again with one block hit, 14, to 37; base to 42; 16 to 58;
    11 to 69."""
    requests = asked((0, 8, 1, (0, 1)))
    run = simulate_fleet(requests, TURNS, split(1, 2), after((10, 1, "dies")))
    assert run.decode_replica.tolist() == [2]
    assert run.cached_tokens.tolist() == [4]
    assert run.prefills["tries"].tolist() == [2]
    assert run.first_token_ms.tolist() == [69.0]
    assert run.seat_wait_ms.tolist() == [0.0]


@pytest.mark.parametrize(("dies_ms", "status"), [(38, FAILED), (40, FINISHED)])
def test_a_prefill_replica_is_needed_until_its_blocks_are_fetched(dies_ms, status):
    """They come at 39. There is no other one to try."""
    run = simulate_fleet(asked((0, 8, 3)), TURNS, split(1, 1), after((dies_ms, 0, "dies")))
    assert run.status.tolist() == [status]


def test_who_waits_on_a_decode_replica_gets_the_blocks_of_one_whose_prefill_replica_dies():
    """Both come at 23; the first one takes two of three blocks until 39, the second waits. At 30
    the first one is lost, and the second one's 16 bytes begin: to 46; 11 to 57."""
    requests = asked((0, 8, 3), (0, 8, 1))
    changes = after((30, 0, "dies"), most_tries=1)
    run = simulate_fleet(requests, TURNS, split(2, 1, kv_blocks=3), changes)
    assert run.status.tolist() == [FAILED, FINISHED]
    assert run.progress["received_ms"][1] == 46.0
    assert run.first_token_ms[1] == 57.0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((0.0, 0, "dyes"), "did you mean dies"),
        ((-1.0, 0, "dies"), "time_ms is -1.0"),
        (("soon", 0, "dies"), "time_ms is 'soon'"),
        ((0.0, 0.5, "dies"), "replica is 0.5; expected an integer"),
        ((0.0, 0, "slows", 0.0), "factor is 0.0"),
    ],
)
def test_a_change_that_cannot_be_is_refused(values, message):
    with pytest.raises(InputError, match=message):
        Change(*values)


@pytest.mark.parametrize("event", ["dies", "slows", "joins"])
def test_a_change_of_a_replica_that_is_not_there_is_refused(event):
    with pytest.raises(InputError, match=r"replica is 2; expected a replica in 0\.\.1"):
        simulate_fleet(THREE, TURNS, alike(2), after((0, 2, event)))
