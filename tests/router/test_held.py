"""Requests held for a replica: worked out by hand, and as the simulator holds them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.costs.iteration import IterationCosts
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.log_file import read_log
from pointsman.dispatch.record import Choice, Held, Unplaced
from pointsman.policies.catalogue import POLICIES, policy_named
from pointsman.policies.policy import policy
from pointsman.replay.replay import replay_same
from pointsman.replay.situations import Past
from pointsman.router.settings import Holding
from pointsman.sim.batching import BatchingFleet, simulate_fleet
from pointsman.sim.conditions import Conditions
from pointsman.sim.conditions import Holding as SimulatedHolding
from tests.router.held_fleet import Arrival, HeldFleet, rows
from tests.small_fleets import ENGINE, asked


def holding(order: str = "fcfs", **given) -> Holding:
    return Holding(**{"wait_ms": 0.0, "timeout_ms": 1e6, "order": order, **given})


LONG_THEN_SHORT = rows((0, 4), (1, 20), (2, 4))


@pytest.mark.parametrize(
    ("by", "finish_ms"),
    [
        (holding("fcfs"), [4.0, 24.0, 28.0]),
        (holding("shortest_prefill", ageing=0.0), [4.0, 28.0, 8.0]),
        # 20 + 100 x 1 against 4 + 100 x 2
        (holding("shortest_prefill", ageing=100.0), [4.0, 24.0, 28.0]),
        (holding("earliest_deadline"), [4.0, 24.0, 28.0]),
    ],
)
def test_held_requests_go_in_their_order(by, finish_ms):
    """At 4 the replica has nothing to do, and one of the two that are held goes."""
    fleet = HeldFleet(holding=by).run(LONG_THEN_SHORT)
    assert [fleet.finish_ms[number] for number in range(3)] == finish_ms


@pytest.mark.parametrize(("third_ms", "second"), [(12, 2), (13.5, 2), (2, 1)])
def test_a_late_one_counts_as_coming_four_objectives_later(third_ms, second):
    """Of 5 ms: at 14 the second is late, and counts as coming at 1 + 20 = 21; the third is late
    only where it came before 9."""
    fleet = HeldFleet(holding=holding("earliest_deadline", ttft_ms=5.0))
    assert fleet.run(rows((0, 14), (1, 20), (third_ms, 4))).order[1] == second


def test_beyond_the_bound_requests_are_sent_at_once():
    """The third waits behind the first, in the replica; the second goes when both are done."""
    fleet = HeldFleet(holding=holding(requests=1)).run(LONG_THEN_SHORT)
    assert fleet.sent_ms == [0.0, 8.0, 2.0]


def test_beyond_the_bound_of_bytes_too():
    fleet = HeldFleet(holding=holding(bytes=1)).run(LONG_THEN_SHORT)  # of one byte each
    assert fleet.sent_ms == [0.0, 8.0, 2.0]


def test_those_held_for_a_replica_count_where_they_wait_to_go():
    """At 1 the third is held for replica 0, 40 ms of work, so that the fourth awaits the other one;
    both go at 40."""
    fleet = HeldFleet("queue_aware", 2).run(rows((0, 40), (0, 40), (1, 40), (2, 40)))
    assert fleet.replica_of == [0, 1, 0, 1]
    assert fleet.sent_ms == [0.0, 0.0, 40.0, 40.0]


def test_it_goes_as_soon_as_the_wait_has_fallen_though_nothing_was_heard():
    """100 ms at 0; of those 30 are left at 70."""
    fleet = HeldFleet(holding=holding(wait_ms=30.0)).run(rows((0, 100), (1, 10)))
    assert fleet.sent_ms == [0.0, 70.0]


def test_of_answers_that_come_whole_the_first_tokens_are_awaited_by_the_time_they_take():
    """The first has 20 left at 30; the second then, which begins at 50, at 80."""
    whole = [Arrival(time_ms, 50, 1000.0, streams=False) for time_ms in (0, 0, 1)]
    fleet = HeldFleet(holding=holding(wait_ms=20.0)).run(whole)
    assert fleet.sent_ms == [0.0, 30.0, 80.0]


def test_a_new_one_is_held_behind_those_that_are_held_though_the_wait_is_short():
    """At 70 the wait is 30, and the first one that is held goes; the next one at 90."""
    fleet = HeldFleet(holding=holding(wait_ms=30.0)).run(rows((0, 100), (1, 20), (2, 1), (75, 1)))
    assert fleet.order == [0, 1, 2, 3]
    assert fleet.sent_ms == [0.0, 70.0, 90.0, 91.0]


def test_a_reading_of_the_replica_lets_it_go():
    """Two of another router wait there, one may be ours: two prefills of 10 ms, until a reading."""
    fleet = HeldFleet()
    fleet.at(0.0, lambda: fleet.dispatcher.read(0, (3.0, 0.0, 0.1)))
    fleet.at(50.0, lambda: fleet.dispatcher.read(0, (0.0, 0.0, 0.0)))
    assert fleet.run(rows((1, 10))).sent_ms == [50.0]


def test_an_end_lets_it_go_where_seats_are_what_lacks():
    fleet = HeldFleet(max_in_flight=1)
    first = Arrival(0, 10, 90.0)
    assert fleet.run([first, *rows((1, 10), (20, 10))]).sent_ms == [0.0, 100.0, 110.0]


def test_who_was_held_for_long_enough_is_sent_however_much_there_is_to_do():
    fleet = HeldFleet(holding=holding(timeout_ms=10.0))
    fleet.at(10.0, lambda: fleet.admission.check(0.010))
    fleet.at(11.0, lambda: fleet.admission.check(0.011))
    assert fleet.run(rows((0, 100), (1, 20))).sent_ms == [0.0, 11.0]
    assert fleet.refused == {}


def test_who_was_held_and_then_found_nobody_ready_is_refused_in_time(tmp_path):
    fleet = HeldFleet(holding=holding(timeout_ms=10.0), log=tmp_path / "log")
    fleet.at(5.0, lambda: fleet.membership[0].health.cannot_be_reached("test"))
    fleet.at(11.0, lambda: fleet.admission.check(0.011))
    assert fleet.run(rows((0, 100), (1, 20))).refused == {1: "no_replica_ready"}
    [line] = read_log(tmp_path / "log").unplaced
    assert (line.request_id, line.after, line.waited_ms) == ("1", 1, 10.0)
    assert line.cause == "no_replica_ready"


LEAVES = {
    "is drained": lambda fleet: fleet.membership.drain(0),
    "is removed": lambda fleet: fleet.membership.remove(0),
    "is removed at once": lambda fleet: fleet.membership.remove(0, at_once=True),
    "is unreachable": lambda fleet: fleet.membership[0].health.cannot_be_reached("test"),
}


@pytest.mark.parametrize("how", LEAVES)
def test_those_held_for_a_replica_go_elsewhere_at_once_when_it(how):
    fleet = HeldFleet(replicas=2)
    fleet.at(5.0, lambda: LEAVES[how](fleet))
    fleet.run(rows((0, 100), (1, 20), (2, 20)))
    assert fleet.replica_of == [0, 1, 1]
    assert fleet.sent_ms == [0.0, 5.0, 25.0]  # the last one is held for the other one then


@pytest.mark.parametrize("others", [[], [(6, 10)]])
def test_while_nobody_is_ready_who_is_held_waits_on_and_goes_first_when_one_is_back(others):
    """The third came when nobody was ready any more, and waits in line."""
    fleet = HeldFleet()
    fleet.at(5.0, lambda: fleet.membership[0].health.cannot_be_reached("test"))
    fleet.at(150.0, fleet.membership[0].health.is_well)
    fleet.run(rows((0, 100), (1, 20), *others))
    assert fleet.sent_ms == [0.0, 150.0, 170.0][: 2 + len(others)]


def test_a_retry_is_held_for_a_replica_that_it_was_not_tried_on():
    """Replica 0 is idle, but has failed it; the other one is busy until 30."""
    fleet = HeldFleet(replicas=2)
    first = Arrival(0, 30, tried=frozenset({0}))
    retry = Arrival(1, 10, tried=frozenset({0}))
    fleet.run([first, retry])
    assert (fleet.replica_of, fleet.sent_ms) == ([1, 1], [0.0, 30.0])


def test_a_retry_whose_replica_is_gone_may_find_the_one_that_failed_as_good_as_new():
    fleet = HeldFleet(replicas=2)
    fleet.at(5.0, lambda: fleet.membership.drain(1))
    fleet.at(6.0, lambda: fleet.admission.check(0.006))
    first = Arrival(0, 30, tried=frozenset({0}))
    fleet.run([first, Arrival(1, 10, tried=frozenset({0}))])
    assert (fleet.replica_of, fleet.sent_ms) == ([1, 0], [0.0, 6.0])


def test_a_client_that_leaves_while_it_is_held_is_gone_at_once(tmp_path):
    """The third is held behind 20 ms of the second; without it, it would go no earlier."""
    fleet = HeldFleet(log=tmp_path / "log")
    counts = []
    fleet.at(5.0, lambda: fleet.leave(1))
    fleet.at(
        6.0, lambda: counts.append((fleet.dispatcher.ledger.held_for(0), fleet.admission.held))
    )
    fleet.run(rows((0, 100), (1, 20), (2, 10)))
    assert counts == [(1, 1)]
    assert fleet.order == [0, 2]
    [line] = read_log(tmp_path / "log").unplaced
    assert (line.request_id, line.cause, line.time_ms, line.waited_ms) == (
        *("1", "client_left"),
        *(5.0, 4.0),
    )


def test_a_policy_that_breaks_on_a_held_one_is_that_ones_error(tmp_path):
    @policy(rule="-", source="-", reasons=("-",))
    def breaking(request, view, parameters):
        if request.now_ms > 5.0 and request.prompt_tokens == 20:
            raise ValueError
        return 0, 0

    fleet = HeldFleet(breaking, log=tmp_path / "log").run(rows((0, 10), (1, 20), (2, 5)))
    assert fleet.order == [0, 2]
    assert [line.cause for line in read_log(tmp_path / "log").unplaced] == ["router_error"]


def test_the_log_says_for_whom_a_request_was_held_and_what_became_of_it(tmp_path):
    HeldFleet("queue_aware", 2, log=tmp_path / "log").run(rows((0, 40), (0, 30), (1, 10)))
    log = read_log(tmp_path / "log")
    assert log.head.holding.wait_ms == 0.0
    [held] = [event for event in log.events if isinstance(event, Held)]
    assert (held.sequence, held.replica, held.expected_wait_ms, held.after) == (2, 1, 29.0, None)
    choice = log.choices[-1]
    assert (choice.sequence, choice.after, choice.replica) == (3, 2, 1)
    assert (choice.time_ms, choice.waited_ms, choice.expected_wait_ms) == (30.0, 29.0, 0.0)
    assert log.held == set()


# As the simulator.

FACTS = [ReplicaFacts(IterationCosts(0.0, 1.0 + r / 64, 0.0, 0.0)) for r in range(3)]


def serial_engine(r: int):
    costs = IterationCosts(1e-12, FACTS[r].costs.per_prefill_token_ms, 0.0, 0.0)
    return replace(ENGINE, max_num_seqs=1, costs=costs)


ROW = st.tuples(st.integers(0, 30), st.integers(2, 60))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(ROW, min_size=2, max_size=25),
    st.sampled_from(["round_robin", "queue_aware"]),
    st.sampled_from(["fcfs", "shortest_prefill", "earliest_deadline"]),
    st.integers(1, 3),
    st.sampled_from([1, 3, 1000]),
)
def test_who_goes_where_and_when_is_what_the_simulator_says(gaps, name, order, replicas, most):
    """Replicas that take one prompt after the other, each a little slower than the one before, so
    that no two things happen at one instant; a simulated iteration takes some time of its own."""
    times = np.cumsum([gap for gap, _ in gaps])
    given_rows = [
        (float(time_ms) + number / 4096, tokens)
        for number, (time_ms, (_, tokens)) in enumerate(zip(times, gaps, strict=True))
    ]
    conditions = Conditions(
        holding=SimulatedHolding(0.0, order, most_held=most, ageing=0.5, ttft_ms=20.0)
    )
    simulated = simulate_fleet(
        asked(*((time_ms, tokens, 1) for time_ms, tokens in given_rows)),
        POLICIES[name],
        BatchingFleet(tuple(map(serial_engine, range(replicas)))),
        conditions,
    )
    by = holding(order, requests=most, ageing=0.5, ttft_ms=20.0)
    fleet = HeldFleet(name, replicas, by, facts=FACTS).run(rows(*given_rows))
    assert fleet.replica_of == simulated.replica.tolist()
    finish_ms = [fleet.finish_ms[number] for number in range(len(gaps))]
    assert finish_ms == pytest.approx(simulated.finish_ms.tolist(), abs=1e-6)


# And the log of it.


def traffic(seed: int, count: int = 80) -> list[Arrival]:
    """Sessions whose prompts share what came before, streamed and whole, faster than served."""
    rng = np.random.default_rng(seed)
    turns = dict.fromkeys(range(9), 0)
    found, time_ms = [], 0.0
    for _ in range(count):
        time_ms += float(rng.exponential(9.0))
        session = int(rng.integers(9))
        turns[session] += int(rng.integers(1, 3))
        blocks = (session % 3, *(100 * session + turn for turn in range(turns[session])))
        streams, answer_ms = bool(rng.random() < 0.6), float(rng.exponential(60.0))
        length = 8 * len(blocks) + int(rng.integers(1, 8))
        found.append(Arrival(time_ms, length, answer_ms, streams, blocks, f"s{session}"))
    return found


@pytest.mark.parametrize("order", ["fcfs", "shortest_prefill", "earliest_deadline"])
@pytest.mark.parametrize("name", POLICIES)
def test_a_log_with_holding_replays_to_the_same_choices_all_of_them(tmp_path, name, order):
    path = tmp_path / "log"
    fleet = HeldFleet(name, 3, holding(order, ttft_ms=50.0, wait_ms=8.0, requests=20), log=path)
    for number in (7, 20, 33):
        fleet.at(60.0 + 9.0 * number, lambda n=number: fleet.leave(n))
    fleet.at(200.0, lambda: fleet.membership.drain(1))
    fleet.at(300.0, lambda: fleet.dispatcher.read(0, (4.0, 3.0, 0.5)))
    fleet.at(330.0, lambda: fleet.dispatcher.read(0, (0.0, 1.0, 0.1)))
    fleet.run(traffic(len(name)))
    log = read_log(path)
    assert sum(isinstance(event, Held) for event in log.events) >= 10
    result = replay_same(log)
    assert (result.choices, result.differences) == (len(log.asks), [])
    assert len(log.choices) + sum(isinstance(event, Unplaced) for event in log.events) >= 77


def test_every_view_is_what_follows_from_the_lines_before_it(tmp_path):
    path = tmp_path / "log"
    HeldFleet("fewest_misses", 3, holding(wait_ms=8.0), log=path).run(traffic(5, 150))
    log = read_log(path)
    past = Past(log)
    for event in log.events:
        if isinstance(event, Choice | Held):
            assert past.view_of(event).tolist() == event.logged_view.tolist()
        past.happen(event)
    assert policy_named(log.head.policy).name == "fewest_misses"


def test_a_replica_of_a_tenth_of_the_weight_is_a_candidate_for_a_tenth_of_those_held_too(tmp_path):
    """Three requests come in the time that one takes, so that all are held and tried often."""
    path = tmp_path / "log"
    fleet = HeldFleet("least_requests", 2, holding(wait_ms=0.0), log=path)
    canary = fleet.membership[1].options
    fleet.membership.tell(1, replace(canary, weight=0.1))
    fleet.run([Arrival(30.0 * number, 90) for number in range(400)])
    asks = read_log(path).asks
    assert len(asks) > 1.5 * 400
    looked_at = {ask.request_id for ask in asks if 1 in ask.candidates}
    assert len(looked_at) == pytest.approx(40, abs=3)
