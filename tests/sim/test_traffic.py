"""Closed loops and held requests, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman import POLICIES, InputError
from pointsman.sim.batching import simulate_fleet
from pointsman.sim.batching_state import REJECTED
from pointsman.sim.conditions import Change, ClosedLoop, Conditions, Holding
from tests.small_fleets import alike, asked

TURNS = POLICIES["round_robin"]
ONE_SEAT = alike(1, max_num_seqs=1)


def test_a_closed_loop_lets_the_next_one_come_a_think_time_after_one_ends():
    """Each takes 14: the first two come at once, the others 5 ms after 14 and after 28."""
    requests = asked(*[(900, 4, 1)] * 4)
    run = simulate_fleet(requests, TURNS, ONE_SEAT, Conditions(closed_loop=ClosedLoop(2, 5.0)))
    assert run.arrival_ms.tolist() == [0.0, 0.0, 19.0, 33.0]
    assert run.finish_ms.tolist() == [14.0, 28.0, 42.0, 56.0]


def test_a_rejected_request_ends_as_well_and_lets_the_next_one_come():
    requests = asked((0, 4000, 1), (0, 4, 1), (0, 4, 1))
    run = simulate_fleet(requests, TURNS, ONE_SEAT, Conditions(closed_loop=ClosedLoop(1, 5.0)))
    assert run.status[0] == REJECTED
    assert run.arrival_ms.tolist() == [0.0, 5.0, 24.0]


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 6), st.sampled_from((0.0, 30.0)), st.integers(0, 2**32), st.booleans())
def test_never_more_are_in_flight_than_the_loop_allows(concurrency, think_ms, seed, fails):
    rng = np.random.default_rng(seed)
    requests = asked(*((0, int(rng.integers(1, 900)), int(rng.integers(1, 9))) for _ in range(25)))
    changes = (Change(150.0, 0, "dies"), Change(300.0, 0, "joins")) if fails else ()
    loop = ClosedLoop(concurrency, think_ms)
    run = simulate_fleet(requests, TURNS, alike(2), Conditions(closed_loop=loop, changes=changes))
    assert (np.diff(run.arrival_ms) >= 0.0).all()
    served = np.flatnonzero(run.finished)
    for at_ms in run.arrival_ms[served]:
        in_flight = (run.arrival_ms[served] <= at_ms) & (run.finish_ms[served] > at_ms)
        assert in_flight.sum() <= concurrency
    if not fails:
        ends = np.sort(np.where(run.finished, run.finish_ms, run.arrival_ms))
        later = run.arrival_ms[concurrency:]
        assert later == pytest.approx(ends[: len(later)] + think_ms)


def held(order: str, **changes: object) -> Conditions:
    return Conditions(holding=Holding(0.0, order, **changes))


LONG_THEN_SHORT = asked((0, 4, 1), (1, 20, 1), (2, 4, 1))


@pytest.mark.parametrize(
    ("conditions", "finish_ms"),
    [
        (held("fcfs"), [14.0, 44.0, 58.0]),
        (held("shortest_prefill", ageing=0.0), [14.0, 58.0, 28.0]),
        # 20 + 100 x 1 against 4 + 100 x 2
        (held("shortest_prefill", ageing=100.0), [14.0, 44.0, 58.0]),
        (held("earliest_deadline"), [14.0, 44.0, 58.0]),
    ],
)
def test_held_requests_go_in_their_order(conditions, finish_ms):
    """At 14 the replica has nothing to do, and one of the two that are held goes."""
    run = simulate_fleet(LONG_THEN_SHORT, TURNS, ONE_SEAT, conditions)
    assert run.finish_ms.tolist() == finish_ms


@pytest.mark.parametrize(("third_ms", "first"), [(12, 2), (13.5, 2), (2, 1)])
def test_a_late_one_counts_as_coming_four_objectives_later(third_ms, first):
    """Of 5 ms: at 14 the second is late, and counts as coming at 1 + 20 = 21; the third is late
    only where it came before 9."""
    requests = asked((0, 4, 1), (1, 20, 1), (third_ms, 4, 1))
    run = simulate_fleet(requests, TURNS, ONE_SEAT, held("earliest_deadline", ttft_ms=5.0))
    assert run.prefills["scheduled_ms"].argsort().tolist()[1] == first


def test_a_late_one_is_not_put_off_for_ever():
    """Short ones come faster than they are served; those that come after 21 go behind it."""
    rows = [(0, 4, 1), (1, 20, 1), *((2 + 10 * k, 4, 1) for k in range(40))]
    run = simulate_fleet(asked(*rows), TURNS, ONE_SEAT, held("earliest_deadline", ttft_ms=5.0))
    assert run.finished.all()
    before = run.prefills["scheduled_ms"][2:] < run.prefills["scheduled_ms"][1]
    assert run.arrival_ms[2:][before].max() <= 41.0


def test_beyond_the_bound_requests_are_sent_at_once():
    run = simulate_fleet(LONG_THEN_SHORT, TURNS, ONE_SEAT, held("fcfs", most_held=1))
    assert run.finish_ms.tolist() == [14.0, 58.0, 28.0]


def test_those_held_for_a_replica_count_where_they_wait_to_go():
    """At 2 the third is held for replica 0, 40 ms of work, so that the fourth awaits the other one;
    both go at 50."""
    requests = asked((0, 40, 1), (0, 40, 1), (1, 40, 1), (2, 40, 1))
    run = simulate_fleet(requests, POLICIES["queue_aware"], alike(2), held("fcfs"))
    assert run.finish_ms.tolist() == [50.0, 50.0, 100.0, 100.0]
    assert run.replica.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(("seats", "replica"), [(1, 1), (2, 0)])
def test_a_replica_whose_seats_are_taken_has_a_wait_though_no_prompt_waits_there(seats, replica):
    """At 500 the first has had its first token for long, and decodes."""
    requests = asked((0, 1, 100), (500, 1, 1))
    fleet = alike(2, max_num_seqs=seats)
    run = simulate_fleet(requests, POLICIES["queue_aware"], fleet)
    assert run.replica.tolist() == [0, replica]


def test_held_requests_go_elsewhere_when_their_replica_dies():
    conditions = Conditions(holding=Holding(0.0), changes=[Change(10.0, 0, "dies")])
    run = simulate_fleet(asked((0, 50, 1), (1, 50, 1), (2, 4, 1)), TURNS, alike(2), conditions)
    assert run.finished.all()
    assert run.replica.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Holding(0.0, "fcfs", most_held=1.5), "most_held is 1.5; expected an integer"),
        (lambda: Holding(-1.0), "wait_ms is -1.0"),
        (lambda: Holding("2"), "wait_ms is '2'; expected a finite number"),
        (lambda: Holding(1.0, "fifo"), "order 'fifo' is unknown"),
        (lambda: ClosedLoop(2.5), "concurrency is 2.5; expected an integer"),
        (lambda: ClosedLoop(1, float("nan")), "think_ms is nan"),
        (lambda: Conditions(most_tries=0), "most_tries is 0"),
        (lambda: Conditions(most_tries=1.5), "most_tries is 1.5; expected an integer"),
    ],
)
def test_conditions_that_cannot_be_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
