"""The router's accounts: worked out by hand, and under any order of events."""

from __future__ import annotations

import math
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.costs.iteration import IterationCosts
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.ledger import Asked, Ledger, Needs
from pointsman.policies import policy as rows

# An iteration takes 10 ms and 1 for each that decodes, a prompt token 1 ms.
COSTS = IterationCosts(10.0, 1.0, 1.0, 0.0)
FACTS = ReplicaFacts(COSTS)
NAN = math.nan


def view(ledger: Ledger, now_ms: float, tokens: int = 100, hits=None, tried_for=None):
    """Of all replicas, for a prompt of so many tokens, which may be held for one of them."""
    views = np.empty((rows.ROWS, ledger.count)), np.empty((rows.ROWS, ledger.count))
    candidates = np.arange(ledger.count, dtype=np.int32)
    sizes = (tokens, (1 << rows.ROWS) - 1)
    ledger.cached[:] = 0.0
    for replica, held in (hits or {}).items():
        ledger.cached[replica] = held
    asked = Asked(now_ms, sizes, candidates, views)
    with nullcontext() if tried_for is None else ledger.trying(tried_for):
        ledger.fill(asked)
    return views[0]


def waits(ledger: Ledger, now_ms: float) -> list[float]:
    return (view(ledger, now_ms)[rows.FREE_AT_MS] - now_ms).tolist()


def test_an_idle_replica_is_free_now():
    seen = view(Ledger([FACTS, FACTS]), 7.25)
    assert seen[rows.FREE_AT_MS].tolist() == [7.25, 7.25]
    assert seen[rows.WORK_MS].tolist() == seen[rows.FULL_WORK_MS].tolist() == [100.0, 100.0]
    assert seen[rows.ITERATION_MS].tolist() == [10.0, 10.0]


def test_the_wait_is_the_prefill_sent_there_less_what_there_was_time_for():
    ledger = Ledger([FACTS, FACTS])
    first = ledger.send(0, (50, 50), 0.0, True)
    ledger.send(0, (30, 20), 0.0, True)
    assert waits(ledger, 0.0) == [70.0, 0.0]
    assert waits(ledger, 40.0) == [30.0, 0.0]
    assert waits(ledger, 90.0) == [20.0, 0.0]  # of the second nothing is known to be done
    ledger.first_token(first, 60.0)
    assert waits(ledger, 60.0) == [20.0, 0.0]
    assert waits(ledger, 70.0) == [10.0, 0.0]
    seen = view(ledger, 70.0)
    assert seen[rows.REQUESTS].tolist() == [2, 0]
    assert seen[rows.PENDING_TOKENS].tolist() == [20, 0]
    assert seen[rows.ITERATION_MS].tolist() == [11.0, 10.0]


def test_tokens_are_counted_by_the_time_that_an_iteration_takes():
    ledger = Ledger([FACTS])
    slot = ledger.send(0, (50, 50), 0.0, True)
    ledger.first_token(slot, 60.0)
    assert view(ledger, 60.0)[rows.CONTEXT_TOKENS].tolist() == [51]
    assert view(ledger, 60.0 + 5 * 11.0 + 1.0)[rows.CONTEXT_TOKENS].tolist() == [56]
    ledger.end(slot, 7, 140.0)
    assert view(ledger, 140.0)[rows.CONTEXT_TOKENS].tolist() == [0]


def test_an_answer_that_comes_whole_is_taken_to_decode_once_its_first_token_was_expected():
    """50 ms of prefill and an iteration of 10."""
    ledger = Ledger([FACTS])
    slot = ledger.send(0, (50, 50), 0.0, False)
    assert view(ledger, 59.0)[rows.PENDING_TOKENS].tolist() == [50]
    assert view(ledger, 61.0)[rows.PENDING_TOKENS].tolist() == [0]
    assert waits(ledger, 61.0) == [0.0]
    ledger.end(slot, 7, 140.0)
    ledger.check_invariants()


@pytest.mark.parametrize("looks_ms", [[], [61.0], [70.0, 119.0]])
def test_a_first_token_comes_after_those_that_were_due_before_it_whoever_looked(looks_ms):
    """Due at 60, and 5 iterations of 11 ms until 120: 50 + 1 + 5 tokens there, and 51."""
    ledger = Ledger([FACTS])
    ledger.send(0, (50, 50), 0.0, False)
    streams = ledger.send(0, (50, 50), 0.0, True)
    for look_ms in looks_ms:
        view(ledger, look_ms)
    ledger.first_token(streams, 120.0)
    assert view(ledger, 120.0)[rows.CONTEXT_TOKENS].tolist() == [56 + 51]


def test_those_held_for_a_replica_count_there_but_for_one_of_them_that_is_tried():
    ledger = Ledger([FACTS, FACTS])
    ledger.send(0, (50, 50), 0.0, True)
    number = ledger.hold(0, Needs(30.0, 30, 40))
    seen = view(ledger, 10.0)
    assert (seen[rows.FREE_AT_MS] - 10.0).tolist() == [40.0 + 30.0, 0.0]
    assert seen[rows.REQUESTS].tolist() == [2, 0]
    assert seen[rows.PENDING_TOKENS].tolist() == [80, 0]
    assert seen[rows.CONTEXT_TOKENS].tolist() == [90, 0]
    assert (view(ledger, 10.0, tried_for=0) == view(without_held(), 10.0)).all()
    assert (view(ledger, 10.0, tried_for=1) == seen).all()
    ledger.let_go(number)
    assert (view(ledger, 10.0) == view(without_held(), 10.0)).all()
    ledger.check_invariants()


def without_held() -> Ledger:
    ledger = Ledger([FACTS, FACTS])
    ledger.send(0, (50, 50), 0.0, True)
    return ledger


def test_those_held_for_seats_that_are_taken_wait_for_as_many_ends():
    """An answer is guessed at 256 tokens of 11 ms; the one that is held makes it two of them."""
    ledger = Ledger([ReplicaFacts(COSTS, max_num_seqs=1)])
    ledger.first_token(ledger.send(0, (1, 1), 0.0, True), 1.0)
    assert waits(ledger, 1.0) == [256 * 11.0]
    ledger.hold(0, Needs(1.0, 1, 1))
    assert waits(ledger, 1.0) == [2 * 256 * 11.0]
    assert ledger.expected_wait(0, 1, 1.0, 0.0) == (256 * 11.0, math.inf)


def test_the_wait_that_held_ones_look_at_says_when_it_will_have_fallen():
    """80 ms of work; after the first 50 nothing more gets less without a first token."""
    ledger = Ledger([FACTS])
    assert ledger.expected_wait(0, 100, 0.0, 30.0) == (0.0, math.inf)
    ledger.send(0, (50, 50), 5.0, True)
    ledger.send(0, (30, 30), 6.0, True)
    ledger.hold(0, Needs(100.0, 100, 100))
    assert ledger.expected_wait(0, 100, 15.0, 40.0) == (70.0, 45.0)
    assert ledger.expected_wait(0, 100, 15.0, 20.0) == (70.0, math.inf)


def test_looking_at_the_wait_counts_first_tokens_that_are_due_and_changes_nothing():
    """Of 50 and 30 ms, and an iteration of 10 each, the first one's is taken to come at 60."""
    ledger = Ledger([FACTS])
    ledger.send(0, (50, 50), 0.0, False)
    ledger.send(0, (30, 30), 0.0, False)
    before = kept_by(ledger)
    assert ledger.expected_wait(0, 100, 55.0, 0.0) == (30.0, 60.0)
    assert ledger.expected_wait(0, 100, 70.0, 0.0) == (20.0, 90.0)
    assert kept_by(ledger) == before
    assert waits(ledger, 70.0) == [20.0]


def kept_by(ledger: Ledger) -> str:
    """All of it in words: NaN is NaN."""
    return str([array.tolist() for array in (*ledger.known[:3], *ledger.live[1:])])


def test_where_all_seats_are_taken_the_wait_is_for_one_to_become_free():
    """Answers have 20 tokens in the mean, an iteration takes 11 ms: one ends every 220 ms."""
    ledger = Ledger([ReplicaFacts(COSTS, max_num_seqs=1)])
    past = ledger.send(0, (1, 1), 0.0, True)
    ledger.first_token(past, 1.0)
    ledger.end(past, 20, 300.0)
    factor = ledger.live.replicas["decode_factor"][0]
    slot = ledger.send(0, (1, 1), 300.0, True)
    ledger.first_token(slot, 310.0)
    assert waits(ledger, 310.0) == pytest.approx([20 * 11.0 * factor])


def test_what_is_cached_costs_nothing_but_the_last_token_always_does():
    seen = view(Ledger([FACTS, FACTS, FACTS]), 0.0, tokens=100, hits={1: 64.0, 2: 128.0})
    assert seen[rows.CACHED_TOKENS].tolist() == [0, 64, 99]
    assert seen[rows.WORK_MS].tolist() == [100, 36, 1]
    assert seen[rows.FULL_WORK_MS].tolist() == [100, 100, 100]


def test_what_an_engine_says_of_others_requests_counts_and_never_replaces_our_own():
    ledger = Ledger([FACTS, FACTS])
    ledger.send(0, (50, 50), 0.0, True)
    ledger.read(0, (4.0, 3.0, 0.5), 0.0)  # ours is one of those that wait; one may be on its way
    seen = view(ledger, 0.0)
    assert seen[rows.REQUESTS].tolist() == [1 + 2 + 3, 0]
    # Two others wait, each of them like the mean of those that we sent.
    assert seen[rows.FREE_AT_MS].tolist() == [50 + 2 * 50, 0]
    assert seen[rows.WAITING_REQUESTS].tolist() == [4, 0]
    assert seen[rows.RUNNING_REQUESTS].tolist() == [3, 0]
    ledger.read(0, (0.0, 0.0, 0.1), 1.0)  # it says less than we sent: ours stay
    assert view(ledger, 0.0)[rows.REQUESTS].tolist() == [1, 0]


def test_before_anything_was_sent_others_requests_are_like_the_one_that_is_asked_about():
    ledger = Ledger([FACTS])
    ledger.read(0, (3.0, 0.0, 0.5), 0.0)
    assert view(ledger, 0.0, tokens=100)[rows.FREE_AT_MS].tolist() == [2 * 100]


def test_a_kv_use_that_is_not_known_is_neither_0_nor_a_reason():
    ledger = Ledger([FACTS, FACTS, ReplicaFacts(COSTS, kv_tokens=1000)])
    ledger.send(2, (100, 100), 0.0, True)
    ledger.read(0, (0.0, 0.0, 0.5), 0.0)
    assert view(ledger, 0.0)[rows.KV_USE].tolist() == pytest.approx([0.5, 0.3, 0.1])
    ledger.read(0, (NAN, NAN, NAN), 1.0)  # a reading that grew old
    assert view(ledger, 1.0)[rows.KV_USE].tolist() == pytest.approx([0.1, 0.1, 0.1])


def test_a_replica_that_takes_twice_as_long_is_learned_from_its_first_tokens():
    """Each prompt takes 200 ms, not 100, and the iteration that ends it."""
    ledger = Ledger([FACTS])
    now_ms = 0.0
    for _ in range(60):
        slot = ledger.send(0, (100, 100), now_ms, True)
        now_ms += 200.0 + 10.0
        ledger.first_token(slot, now_ms)
        ledger.end(slot, None, now_ms)
    assert view(ledger, now_ms)[rows.WORK_MS].tolist() == pytest.approx([200.0], rel=0.01)


def test_iterations_that_take_twice_as_long_are_learned_from_ended_answers():
    """Alone an iteration is to take 11 ms; it takes 22."""
    ledger = Ledger([FACTS])
    now_ms = 0.0
    for _ in range(120):
        slot = ledger.send(0, (1, 1), now_ms, True)
        ledger.first_token(slot, now_ms)
        now_ms += 22.0 * 19
        ledger.end(slot, 20, now_ms)
    assert view(ledger, now_ms)[rows.ITERATION_MS].tolist() == pytest.approx([20.0], rel=0.01)


steps = st.tuples(
    st.sampled_from(("send", "first", "end", "read", "look")), st.integers(0, 99), st.booleans()
)


@given(st.lists(steps, max_size=400), st.integers(0, 5))
def test_whatever_happens_in_whatever_order_all_returns_to_zero(events, gap_ms):
    ledger = Ledger([FACTS, ReplicaFacts(COSTS, max_num_seqs=2)])
    open_slots: list[int] = []
    now_ms = 0.0
    for kind, number, flag in events:
        now_ms += gap_ms
        if kind == "send":
            open_slots.append(ledger.send(number % 2, (number, number // 2), now_ms, flag))
        elif kind == "read":
            gauge = NAN if flag else float(number)
            ledger.read(number % 2, (gauge, 1.0, gauge / 100), now_ms)
        elif kind == "look":
            seen = view(ledger, now_ms)
            assert not np.isnan(seen).any()
            assert (seen[rows.FREE_AT_MS] >= now_ms).all()
        elif open_slots and kind == "first":
            ledger.first_token(open_slots[number % len(open_slots)], now_ms)
        elif open_slots:
            tokens = None if flag else number
            ledger.end(open_slots.pop(number % len(open_slots)), tokens, now_ms)
        ledger.check_invariants()
        assert ledger.in_flight == len(open_slots)
    for slot in open_slots:
        ledger.end(slot, None, now_ms)
    assert ledger.requests.tolist() == [0, 0]
    ledger.check_invariants()


def test_more_requests_than_ever_before_find_room():
    ledger = Ledger([FACTS, FACTS])
    slots = [ledger.send(k % 2, (10, 10), 0.0, True) for k in range(1000)]
    assert len(set(slots)) == 1000
    for slot in slots:
        ledger.first_token(slot, 1.0)
    assert ledger.requests.tolist() == [500, 500]
    for slot in slots:
        ledger.end(slot, 5, 2.0)
    ledger.check_invariants()
