"""Expected misses worked out by hand, and against a transcription of the rule as it is written."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pointsman import POLICIES
from pointsman.policies import policy as rows
from pointsman.policies.fewest_misses import decoding_misses, ended_by, own_miss, waiting_misses
from pointsman.policies.in_flight import FLIGHT, LONGEST_OUTPUT, idle_in_flight
from pointsman.policies.policy import REQUEST, view_for

# Answers so far: one each of 10, 20 and 40 tokens.
ANSWERS = (10, 20, 40)
TPOT = (60.0, 10.0)  # objective, and an iteration: 50 ms to spare a token
NOW_MS = 1000.0


@dataclass(frozen=True)
class Decoding:
    """A request that has had so many tokens, the first of them ``age_ms`` ago."""

    age_ms: float
    tokens: int


@dataclass(frozen=True)
class Replica:
    """``waiting_ms``: work of those without a first token, the oldest first."""

    decoding: tuple[Decoding, ...] = ()
    waiting_ms: tuple[float, ...] = ()


def known_of(replicas, answers=ANSWERS, steps=1):
    """The tables of requests in flight; each decoding one got its last ``steps`` tokens lately."""
    most = 1 + max(len(r.decoding) + len(r.waiting_ms) for r in replicas)
    flights = np.zeros(most * len(replicas), dtype=FLIGHT)
    known = idle_in_flight(flights, np.zeros((len(replicas), most), dtype=np.int32))
    known.replica_of[:, 0] = np.arange(len(replicas))
    for n in range(LONGEST_OUTPUT + 1):
        known.ended_by[n] = sum(answer <= n for answer in answers) / max(1, len(answers))
    row = 0
    for r, replica in enumerate(replicas):
        account = known.accounts[r]
        account["counts"], account["steps"] = len(replica.decoding), steps
        for k, each in enumerate(replica.decoding):
            flights[row]["first_token_ms"] = NOW_MS - each.age_ms
            flights[row]["tokens_out"] = each.tokens - steps
            known.running[r, k] = row
            row += 1
        for work_ms in replica.waiting_ms:
            flights[row]["first_token_ms"], flights[row]["work_ms"] = math.nan, work_ms
            flights[row]["older"] = account["newest"]
            account["newest"] = row
            row += 1
    return known


def fraction_by(answers, tokens):
    """F of the rule: how many of the answers so far had at most so many whole tokens."""
    if tokens >= LONGEST_OUTPUT:
        return 1.0
    return sum(answer <= math.floor(tokens) for answer in answers) / max(1, len(answers))


def decoding_as_written(replica, answers, stall_ms, more_ms, tpot):
    """[F(max(l(W + u), g)) - F(max(l(W), g))] / (1 - F(g)), l(x) = (t + x + P - g it) / (P - it)"""
    objective, iteration = tpot
    total = 0.0
    for each in replica.decoding:
        g = each.tokens

        def needed(stall, each=each, g=g):
            return (each.age_ms + stall + objective - g * iteration) / (objective - iteration)

        gone = fraction_by(answers, g)
        if gone < 1.0:
            after = fraction_by(answers, max(needed(stall_ms + more_ms), g))
            total += (after - fraction_by(answers, max(needed(stall_ms), g))) / (1.0 - gone)
    return total


def waiting_as_written(replica, answers, more_ms, tpot, rounding_ms=0.0):
    """F(l'(B + u)) - F(l'(B)), l'(x) = (x + P - it) / (P - it), B the prefill behind each.

    ``rounding_ms`` makes the first B longer and the second one shorter: sums in another order
    fall on either side of a whole token.
    """
    spare = tpot[0] - tpot[1]
    total = 0.0
    for k in range(len(replica.waiting_ms)):
        behind = sum(replica.waiting_ms[k + 1 :])
        after = fraction_by(answers, (behind + rounding_ms + more_ms + spare) / spare)
        total += after - fraction_by(answers, (behind - rounding_ms + spare) / spare)
    return total


def test_the_fraction_of_answers_that_ended_is_read_off_at_whole_tokens():
    known = known_of([Replica()])
    cases = {-5.0: 0, 0.0: 0, 9.99: 0, 10.0: 1, 19.9: 1, 20.0: 2, 40.0: 3, 1e9: 3}
    for tokens, ended in cases.items():
        assert ended_by(known, tokens) == pytest.approx(ended / 3)


@pytest.mark.parametrize(
    ("first_token_ms", "expected"),
    [
        (3000.0, 0.5),  # exactly on time
        (2700.0, 1 / (1 + math.e)),  # a tenth of the objective early: one width of the step
        (3300.0, 1 / (1 + 1 / math.e)),  # a tenth late
        (0.0, 1 / (1 + math.exp(10.0))),
        (9000.0, 1.0),  # certain
        (1e12, 1.0),
    ],
)
def test_an_own_miss_is_a_soft_step(first_token_ms, expected):
    assert own_miss(first_token_ms, 3000.0) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(
    ("more_ms", "expected"),
    [
        # 11 tokens after 100 ms: in time if longer than (100 + 60 - 110) / 50 = 1 token: certain.
        (500.0, 0.0),  # longer than 11, which it is
        (1000.0, 0.5),  # longer than 21: of the two answers beyond 11 one is 20
        (2000.0, 1.0),  # longer than 41: none
    ],
)
def test_a_prefill_makes_those_late_whose_answer_ends_before_it_is_made_up_for(more_ms, expected):
    known = known_of([Replica(decoding=(Decoding(100.0, 11),))])
    assert decoding_misses(known, 0, NOW_MS, 0.0, more_ms, TPOT) == pytest.approx(expected)


def test_a_stall_that_is_coming_anyhow_is_not_charged_twice():
    """Behind 1,000 ms it needs 21 tokens as it is, behind 500 more 31: both between 20 and 40."""
    known = known_of([Replica(decoding=(Decoding(100.0, 11),))])
    assert decoding_misses(known, 0, NOW_MS, 1000.0, 500.0, TPOT) == 0.0


def test_who_is_longer_than_every_answer_so_far_is_not_counted():
    known = known_of([Replica(decoding=(Decoding(100.0, 40),))])
    assert decoding_misses(known, 0, NOW_MS, 0.0, 1e6, TPOT) == 0.0


def test_a_running_request_without_a_first_token_is_no_decoding_one():
    known = known_of([Replica(decoding=(Decoding(100.0, 11),))])
    known.flights["first_token_ms"] = math.nan
    assert decoding_misses(known, 0, NOW_MS, 0.0, 2000.0, TPOT) == 0.0


def test_a_waiting_request_is_stalled_by_the_prefills_behind_it():
    """500 ms more: the newest needs (0 + 500 + 50) / 50 = 11 tokens instead of 1, the older one
    (100 + 500 + 50) / 50 = 13 instead of 3; a third of the answers have fewer."""
    known = known_of([Replica(waiting_ms=(200.0, 100.0))])
    assert waiting_misses(known, 0, 500.0, TPOT) == pytest.approx(2 / 3)
    # 1,000 ms more: 21 and 23 tokens; two thirds have fewer.
    assert waiting_misses(known, 0, 1000.0, TPOT) == pytest.approx(4 / 3)


@pytest.mark.parametrize("iteration_ms", [60.0, 75.0])
def test_where_no_objective_can_be_met_nothing_more_is_missed(iteration_ms):
    known = known_of([Replica((Decoding(100.0, 11),), (200.0,))])
    tpot = (60.0, iteration_ms)
    assert decoding_misses(known, 0, NOW_MS, 0.0, 1000.0, tpot) == 0.0
    assert waiting_misses(known, 0, 1000.0, tpot) == 0.0


def test_before_any_answer_has_ended_nothing_is_expected_to_be_missed():
    known = known_of([Replica((Decoding(100.0, 11),), (200.0,))], answers=())
    assert decoding_misses(known, 0, NOW_MS, 0.0, 1000.0, TPOT) == 0.0
    assert waiting_misses(known, 0, 1000.0, TPOT) == 0.0


durations_ms = st.floats(0.0, 5000.0)
replicas = st.builds(
    Replica,
    st.lists(st.builds(Decoding, st.floats(0.0, 900.0), st.integers(1, 60)), max_size=4).map(tuple),
    st.lists(durations_ms, max_size=4).map(tuple),
)
answers_so_far = st.lists(st.integers(1, 80), min_size=1, max_size=6).map(tuple)


@settings(max_examples=60, deadline=None)
@given(replicas, answers_so_far, durations_ms, durations_ms, st.floats(1.0, 50.0))
def test_misses_are_those_of_the_rule_as_it_is_written(
    replica, answers, stall_ms, more_ms, iteration
):
    known, tpot = known_of([replica], answers), (60.0, iteration)
    found = decoding_misses(known, 0, NOW_MS, stall_ms, more_ms, tpot)
    written = decoding_as_written(replica, answers, stall_ms, more_ms, tpot)
    # Where a bound falls on a whole token, the order of adding decides: ours adds more_ms last.
    if abs(found - written) > 1e-9:
        nudged = [
            decoding_as_written(replica, answers, stall_ms, more_ms + nudge, tpot)
            for nudge in (-1e-6, 1e-6)
        ]
        assert min(nudged) - 1e-9 <= found <= max(nudged) + 1e-9
    waiting = waiting_misses(known, 0, more_ms, tpot)
    assert waiting <= waiting_as_written(replica, answers, more_ms, tpot, 1e-6) + 1e-9
    # One that is late with 999 in 1,000 needs no look, nor do those before it.
    certain = 0.001 * len(replica.waiting_ms)
    least = waiting_as_written(replica, answers, more_ms, tpot, -1e-6)
    assert waiting >= least - certain - 1e-9


@dataclass(frozen=True)
class Candidate:
    replica: Replica
    wait_ms: float
    work_ms: float
    full_work_ms: float
    iteration_ms: float


def score_as_written(each, mean_full_ms, answers, limits):
    """M + N + (W + 9 u f / F + it) / (3 S), f the mean full work of all, F the candidate's."""
    ttft_ms, tpot_ms = limits
    tpot = (tpot_ms, each.iteration_ms)
    late = (each.wait_ms + each.work_ms - ttft_ms) / ttft_ms
    own = 1 / (1 + math.exp(-max(-50.0, min(50.0, late / 0.1))))
    inflicted = 0.0
    if each.iteration_ms < tpot_ms:
        inflicted = decoding_as_written(
            each.replica, answers, each.wait_ms, each.work_ms, tpot
        ) + waiting_as_written(each.replica, answers, each.work_ms, tpot)
    work_ms = 9.0 * each.work_ms * mean_full_ms / each.full_work_ms
    return own + inflicted + (each.wait_ms + work_ms + each.iteration_ms) / (3.0 * ttft_ms)


def early_enough(candidates, ttft_ms):
    """Nobody is sent where the first token comes after S and 1.5 times as late as it could."""
    first_ms = [each.wait_ms + each.work_ms for each in candidates]
    latest_ms = max(ttft_ms, 1.5 * min(first_ms))
    assume(all(abs(ms - latest_ms) > 1e-6 for ms in first_ms))
    return [each for each, ms in zip(candidates, first_ms, strict=True) if ms <= latest_ms]


def chosen(candidates, answers=ANSWERS, **limits):
    rule = POLICIES["fewest_misses"].bind(**limits)
    view = view_for(rule.reads, len(candidates))
    view[rows.FREE_AT_MS] = [NOW_MS + each.wait_ms for each in candidates]
    view[rows.WORK_MS] = [each.work_ms for each in candidates]
    view[rows.FULL_WORK_MS] = [each.full_work_ms for each in candidates]
    view[rows.ITERATION_MS] = [each.iteration_ms for each in candidates]
    request = np.zeros(1, dtype=REQUEST)
    request["now_ms"] = NOW_MS
    known = known_of([each.replica for each in candidates], answers)
    return rule.choose(request[0], view, rule.parameter_values, known)[0]


def test_of_idle_replicas_the_one_with_the_least_work_is_taken():
    idle = [Candidate(Replica(), 0.0, work_ms, 400.0, 6.0) for work_ms in (400.0, 100.0, 300.0)]
    assert chosen(idle) == 1


def test_a_cached_prefix_is_left_where_using_it_makes_others_miss():
    """100 ms less work is worth 9 x 100 / 9,000 = 0.1 misses; its two decoding requests would
    need 21 tokens, half a miss each; both replicas would do so with 500 ms instead of 1,000."""
    busy = Replica(decoding=(Decoding(100.0, 11), Decoding(100.0, 11)))
    holder = Candidate(busy, 0.0, 1000.0, 1100.0, 10.0)
    other = Candidate(Replica(), 0.0, 1100.0, 1100.0, 10.0)
    assert chosen([holder, other]) == 1
    light = Candidate(busy, 0.0, 500.0, 600.0, 10.0), Candidate(Replica(), 0.0, 600.0, 600.0, 10.0)
    assert chosen(light) == 0


def test_work_is_priced_by_its_share_of_the_prompt_so_that_a_slow_replica_is_no_dearer():
    """Nothing cached: the price of work is 9 x the mean on both, 9 x 700 / 9,000; what is left is
    10 ms less waiting on the slow one. By its own milliseconds it would be 0.6 misses dearer."""
    fast = Candidate(Replica(), 12.0, 400.0, 400.0, 6.0)
    slow = Candidate(Replica(), 0.0, 1000.0, 1000.0, 6.0)
    assert chosen([fast, slow]) == 1


def test_the_objectives_are_parameters():
    """1 s of waiting for a prefix that saves 0.5 s: nothing at 3 s, a certain miss at 0.6 s."""
    holder = Candidate(Replica(), 1000.0, 100.0, 600.0, 6.0)
    other = Candidate(Replica(), 0.0, 500.0, 600.0, 6.0)
    assert chosen([holder, other]) == 0
    assert chosen([holder, other], ttft_ms=600.0) == 1


@pytest.mark.parametrize(("wait_ms", "expected"), [(4540.0, 0), (4560.0, 1), (2850.0, 0)])
def test_beyond_the_objective_nobody_waits_half_as_long_again_as_he_has_to(wait_ms, expected):
    """The other one's first token comes after 3.1 s, 1.5 times that is 4.65 s; stalling those that
    decode there would cost more than the lateness, however late."""
    busy = Replica(decoding=tuple(Decoding(100.0, 11) for _ in range(9)))
    holder = Candidate(Replica(), wait_ms, 100.0, 3000.0, 6.0)
    other = Candidate(busy, 100.0, 3000.0, 3000.0, 6.0)
    assert chosen([holder, other]) == expected


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.builds(
            Candidate,
            replicas,
            durations_ms,
            st.floats(0.0, 900.0),
            st.floats(900.0, 3000.0),
            st.floats(1.0, 90.0),
        ),
        min_size=1,
        max_size=5,
    ),
    answers_so_far,
)
def test_the_choice_has_the_least_sum_as_it_is_written(candidates, answers):
    mean_ms = sum(each.full_work_ms for each in candidates) / len(candidates)
    allowed = early_enough(candidates, 3000.0)
    sums = [
        score_as_written(each, mean_ms, answers, (3000.0, 60.0)) if each in allowed else math.inf
        for each in candidates
    ]
    spread = sorted(sums)
    # What is left out as certain, and bounds that fall on a whole token, tell near sums apart.
    assume(len(spread) == 1 or spread[1] - spread[0] > 0.01)
    nudged = [
        score_as_written(
            Candidate(**{**vars(each), "work_ms": each.work_ms + 1e-6}), mean_ms, answers, (3e3, 60)
        )
        for each in candidates
    ]
    close = [a == math.inf or abs(a - b) < 1e-3 for a, b in zip(sums, nudged, strict=True)]
    assume(all(close))
    assert chosen(candidates, answers) == sums.index(spread[0])
