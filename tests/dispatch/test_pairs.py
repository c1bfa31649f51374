"""Choices of pairs: the view, the accounts on both, and what hand-offs are learned to take."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.costs.iteration import IterationCosts
from pointsman.dispatch.dispatcher import Ending, Rules
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.pair_dispatcher import PairDispatcher, PairFleet
from pointsman.dispatch.pair_ledger import PairLedger, Pairs, pairs_of
from pointsman.dispatch.prefix_index import Chain
from pointsman.dispatch.question import Question
from pointsman.dispatch.record import Usage
from pointsman.dispatch.snapshot import restore, snapshot_of
from pointsman.policies.catalogue import policy_named
from pointsman.policies.policy import (
    CACHED_TOKENS,
    CANDIDATE,
    CONTEXT_TOKENS,
    FREE_AT_MS,
    ITERATION_MS,
    PENDING_TOKENS,
    REQUESTS,
    WORK_MS,
)

# An iteration takes 10 ms, 2 more for each that decodes; a prompt token 1 ms.
COSTS = IterationCosts(10.0, 1.0, 2.0, 0.0)
FACTS = ReplicaFacts(COSTS)
TWO_AND_TWO = pairs_of([0, 1], [2, 3])  # (0, 2), (1, 3), (0, 3), (1, 2); then 2 and 3 alone


class Clocked:
    """A dispatcher of two and two, and its clock."""

    def __init__(self, facts=FACTS, *, moves_all=False, policy="round_robin"):
        self.now_ms = 0.0
        pairs = Pairs(TWO_AND_TWO, moves_all=moves_all)
        rules = Rules(policy_named(policy))
        self.dispatcher = PairDispatcher(rules, PairFleet([facts] * 4, pairs), lambda: self.now_ms)

    def choose(self, among, tokens=100, **fields):
        question = Question("r", prompt_tokens=tokens, streams=True, **fields)
        return self.dispatcher.send(self.dispatcher.ask(question, among))

    def view(self, tokens=50, **fields):
        question = Question("r", prompt_tokens=tokens, streams=True, **fields)
        return self.dispatcher.ask(question, [0, 1, 2, 3]).situation.view


def test_pairs_take_turns_in_both_pools_as_the_simulated_ones_do():
    assert TWO_AND_TWO == [(0, 2), (1, 3), (0, 3), (1, 2), (2, None), (3, None)]
    assert pairs_of([0, 1], [2, 3, 4])[:3] == [(0, 2), (1, 3), (0, 3)]


def test_an_idle_pair_is_free_after_an_iteration_of_its_decode_replica():
    view = Clocked().view(tokens=50)
    assert view[FREE_AT_MS].tolist() == [10.0] * 4
    assert view[WORK_MS].tolist() == [50.0] * 4
    assert view[CANDIDATE].tolist() == [0, 1, 2, 3]


def test_as_many_pairs_as_there_are_replicas_are_the_pairs_that_were_asked_about():
    at = Clocked()
    at.choose([0], tokens=100)  # replicas 0 and 2
    asked = at.dispatcher.ask(Question("r", prompt_tokens=50), [1, 3, 4, 5])
    # (1, 3), (1, 2), 2 alone, 3 alone.
    assert asked.situation.view[REQUESTS].tolist() == [0.0, 1.0, 1.0, 0.0]


def test_a_request_counts_on_both_from_its_choice_on():
    at = Clocked()
    at.choose([0], tokens=100)
    at.now_ms = 40.0
    view = at.view()
    # W of replica 0 is 100 ms less the 40 that have passed.
    assert view[FREE_AT_MS].tolist() == [110.0, 50.0, 110.0, 50.0]
    assert view[REQUESTS].tolist() == [2.0, 0.0, 1.0, 1.0]
    assert view[PENDING_TOKENS].tolist() == [100.0, 0.0, 100.0, 0.0]
    assert view[CONTEXT_TOKENS].tolist() == [100.0, 0.0, 0.0, 100.0]


def test_an_answered_prefill_leaves_its_replica_and_its_first_token_decodes_on_the_other():
    at = Clocked()
    ticket = at.choose([0], tokens=100)
    at.now_ms = 110.0
    ticket.prefilled()
    assert at.dispatcher.ledger.requests.tolist() == [0.0, 0.0, 1.0, 0.0]
    at.now_ms = 130.0
    ticket.first_token()
    view = at.view()
    # Its hand-off took 130 - 110 ms less the iteration of 10: 10 ms for 100 tokens.
    assert view[ITERATION_MS].tolist() == [12.0, 10.0, 10.0, 12.0]
    assert view[FREE_AT_MS].tolist() == pytest.approx([147.0, 145.0, 145.0, 147.0])


def test_the_wait_for_a_seat_of_the_decode_replica_is_that_of_those_that_must_end():
    at = Clocked(ReplicaFacts(COSTS, max_num_seqs=1))
    ticket = at.choose([0])
    ticket.prefilled()
    ticket.handed_off()
    ticket.first_token()
    # One must end: 256 tokens, as none has ended yet, of 12 ms each; then an iteration.
    assert at.view()[FREE_AT_MS].tolist() == [256 * 12 + 12, 10, 10, 256 * 12 + 12]


def test_the_wait_for_tokens_of_the_decode_replica_goes_by_its_mean_context():
    at = Clocked(ReplicaFacts(COSTS, kv_tokens=500))
    ticket = at.choose([0], tokens=400)
    ticket.prefilled()
    ticket.handed_off()
    ticket.first_token()
    # 401 there, 50 come, and 256 of their answer: 207 too many, of requests of 401 tokens.
    wait_ms = 207 / 401 * 256 * 12
    assert at.view(tokens=50)[FREE_AT_MS][0] == pytest.approx(wait_ms + 12)
    # 50 and 256 fit into the 500 of the other one.
    assert at.view(tokens=50)[FREE_AT_MS][1] == 10.0


def test_only_what_the_decode_replica_lacks_is_moved():
    chain = Chain([7], 64)
    for moves_all, expected_ms in ((False, 36.0), (True, 100.0)):
        at = Clocked(moves_all=moves_all)
        at.dispatcher.pair_ledger.handed_off(0, 1000.0, 1000.0)  # 1 ms a token
        at.dispatcher.prefixes.hold(chain, 2)
        view = at.view(tokens=100, chain=chain)
        assert view[FREE_AT_MS].tolist() == [10 + expected_ms, 110.0, 110.0, 10 + expected_ms]
        assert view[CACHED_TOKENS].tolist() == [0.0] * 4  # of the prefill replicas


def test_both_hold_the_prompt_once_it_was_sent():
    at = Clocked()
    at.choose([0], tokens=100, chain=Chain([7], 64))
    view = at.view(tokens=100, chain=Chain([7], 64))
    assert view[CACHED_TOKENS].tolist() == [64.0, 0.0, 64.0, 0.0]
    assert at.dispatcher.ledger.cached.tolist() == [64.0, 0.0, 64.0, 0.0]


def test_one_that_falls_back_is_work_of_its_decode_replica():
    at = Clocked()
    ticket = at.choose([0], tokens=100)
    at.now_ms = 20.0
    ticket.fall_back("prefill_lost")
    at.dispatcher.ledger.check_invariants()
    assert at.dispatcher.ledger.requests.tolist() == [0.0, 0.0, 1.0, 0.0]
    assert at.dispatcher.ledger.pending_ms(2) == 100.0
    ticket.first_token()
    ticket.end(Ending("ok"))
    assert at.dispatcher.ledger.in_flight == 0


def test_a_decode_replica_by_itself_is_a_candidate_as_any_replica():
    at = Clocked()
    ticket = at.choose([4, 5], tokens=100)
    assert (ticket.prefill, ticket.replica) == (None, 2)
    assert at.dispatcher.ledger.pending_ms(2) == 100.0
    assert at.dispatcher.ledger.requests.tolist() == [0.0, 0.0, 1.0, 0.0]


def test_the_first_token_of_an_answer_that_comes_whole_is_taken_to_come_after_its_hand_off():
    at = Clocked()
    at.dispatcher.pair_ledger.handed_off(0, 100.0, 50.0)
    question = Question("r", prompt_tokens=100)
    ticket = at.dispatcher.send(at.dispatcher.ask(question, [0]))
    at.now_ms = 110.0
    ticket.prefilled()
    at.now_ms = 169.0  # 110 + 50 of the hand-off + an iteration of 10 is 170
    assert at.view()[ITERATION_MS][0] == 10.0
    at.now_ms = 170.0
    assert at.view()[ITERATION_MS][0] == 12.0


# What hand-offs take.


def ledger():
    return PairLedger([FACTS] * 4, Pairs(TWO_AND_TWO))


def expected_ms(account, pair, tokens):
    account.cached[:] = 0.0
    return account.expected_handoff(pair, tokens)[1]


def test_before_the_first_hand_off_none_takes_time():
    assert expected_ms(ledger(), 0, 1000) == 0.0


def test_after_one_the_line_goes_through_nothing():
    account = ledger()
    account.handed_off(0, 100.0, 10.0)
    assert expected_ms(account, 1, 300) == pytest.approx(30.0)


def test_after_two_of_different_sizes_the_line_goes_through_both():
    account = ledger()
    account.handed_off(0, 100.0, 10.0)
    account.handed_off(0, 200.0, 15.0)
    assert expected_ms(account, 0, 300) == pytest.approx(20.0)


@given(st.lists(st.tuples(st.integers(1, 10**5), st.floats(0.0, 1e4)), min_size=3, max_size=30))
def test_the_line_is_that_of_weighted_least_squares_held_above_zero(samples):
    account = ledger()
    for tokens, took_ms in samples:
        account.handed_off(0, tokens, took_ms)
    x, y = np.array(samples, dtype=float).T
    weights = 0.95 ** np.arange(len(samples))[::-1]
    mean_x, mean_y = np.average(x, weights=weights), np.average(y, weights=weights)
    rate = mean_y / mean_x
    spread = math.sqrt(np.average((x - mean_x) ** 2, weights=weights)) / mean_x
    if abs(spread - 0.1) < 1e-6:
        return  # either side will do
    if spread > 0.1:
        slope, _ = np.polyfit(x, y, 1, w=np.sqrt(weights))
        rate = max(0.0, min(rate, slope))
    link = account.live.link[0]
    assert link["per_token_ms"] == pytest.approx(rate, rel=1e-6, abs=1e-9 * (1 + y.max()))
    base_ms = mean_y - rate * mean_x
    assert link["base_ms"] == pytest.approx(base_ms, rel=1e-6, abs=1e-6 * (1 + y.max()))


def test_a_pair_that_takes_longer_than_the_line_says_is_expected_to():
    account = ledger()
    for _ in range(50):
        account.handed_off(0, 100.0, 10.0)
        account.handed_off(1, 100.0, 20.0)
    assert expected_ms(account, 0, 100) == pytest.approx(10.0, rel=0.05)
    assert expected_ms(account, 1, 100) == pytest.approx(20.0, rel=0.05)
    assert expected_ms(account, 2, 100) == pytest.approx(15.0, rel=0.05)


# A snapshot.


def test_accounts_made_of_a_snapshot_go_on_as_the_old_ones():
    at = Clocked()
    tickets = [at.choose([k]) for k in (0, 1, 2, 3)]
    at.now_ms = 120.0
    tickets[1].prefilled()
    tickets[1].handed_off(5)
    tickets[1].first_token()
    tickets[2].prefilled()
    old, now_ms = at.dispatcher.pair_ledger, at.now_ms
    again = ledger()
    slots = restore(again, snapshot_of(old, now_ms))
    again.adopt(slots)
    again.check_invariants()
    assert sorted(again.numbers.values()) == sorted(old.numbers.values())
    assert again.live.link.tobytes() == old.live.link.tobytes()
    assert again.live.pairs.tobytes() == old.live.pairs.tobytes()
    for account, slot in ((old, tickets[0]._slot), (again, slots[0])):
        account.prefilled(slot, None, 130.0)
        account.first_token(slot, 140.0)
        account.end(slot, 9, 200.0)
        account.check_invariants()
    known, same = old.known.accounts, again.known.accounts
    for name in ("requests", "pending_ms", "context_tokens", "decoding", "decoding_tokens"):
        assert known[name].tolist() == same[name].tolist(), name


def test_usage_of_ended_answers_teaches_their_length_once():
    at = Clocked()
    ticket = at.choose([0])
    ticket.prefilled()
    ticket.first_token()
    ticket.end(Ending("ok", usage=Usage(output_tokens=7)))
    assert at.dispatcher.ledger.known.finished.tolist()[0] == 1
