"""The measured verdict: by hand, and never looser than the lesson's rule."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.evidence.comparable import Comparable
from pointsman.evidence.envelope import Goodput, Objectives
from pointsman.evidence.figures import BETTER, SAME, WORSE
from pointsman.evidence.group import group_of_envelope
from pointsman.evidence.judging import STRICTER, Rule, judge
from pointsman.verdict.decide import Candidate, Limits, decide
from tests.evidence.groups import (
    FAST,
    MOVED,
    ONE,
    SLOW,
    SPLIT,
    TWO,
    WORKLOAD,
    group,
    times,
    with_repeats,
)

RULE = Rule(Limits(0.8, 0.05))
COMPARABLE = Comparable(("replicas",), (), ())
EVEN = (28_000, 29_600)
change = msgspec.structs.replace


def judged(candidate, baseline=None, rule=RULE, comparable=COMPARABLE):
    groups = (baseline or group("g0", ONE, SLOW), candidate)
    views = [group_of_envelope(each, Path(f"{each.group}.json"), b"") for each in groups]
    return judge(views[0], views[1], comparable, rule)


def figure(judgement, name):
    return next(each for each in judgement.metrics if each.name == name)


def test_a_gain_beyond_the_noise_on_even_replicas_is_accepted():
    judgement = judged(group("g1", TWO, FAST, EVEN))
    assert (judgement.decision, judgement.next_action) == (
        "accept",
        "promote_to_real_cluster_check",
    )


def test_an_interval_is_students_t_on_the_paired_repeats():
    """E2E 500, 510, 520 less 1000, 1020, 1040: -500, -510, -520; 4.303 * 10 / sqrt(3) = 24.84."""
    compared = figure(judged(group("g1", TWO, FAST, EVEN)), "e2e_ms")
    assert (compared.low, compared.high) == pytest.approx((-534.84, -485.16), abs=0.01)
    assert compared.difference == pytest.approx(-510.0)
    assert compared.verdict == BETTER


def test_the_reason_is_in_numbers():
    reason = judged(group("g1", TWO, FAST, EVEN)).reason
    assert reason.startswith("e2e_ms 510 against 1,020 (-534.8 to -485.2)")


def test_a_gain_within_the_noise_is_tuned_not_accepted():
    noisy = times(0.9, e2e_ms=(700.0, 950.0, 1100.0))
    judgement = judged(group("g1", TWO, noisy, EVEN))
    assert figure(judgement, "e2e_ms").verdict == SAME
    assert (judgement.decision, judgement.next_action) == (
        "tune",
        "refine_routing_or_parallel_degree",
    )
    assert "e2e_ms is not told apart from noise" in judgement.reason


def test_what_is_no_faster_is_rejected():
    judgement = judged(group("g1", TWO, times(1.1), EVEN))
    assert (judgement.decision, judgement.next_action) == (
        "reject",
        "fallback_to_single_replica_audit",
    )
    assert judgement.reason.startswith("slower: e2e_ms 1,122 against 1,020")
    assert "not told apart" not in judgement.reason  # the interval is what tells it
    assert judgement.reason.count("e2e_ms 1,122 against 1,020") == 1


@pytest.mark.parametrize("count", [1, 2])
def test_fewer_than_three_repeats_accept_nothing(count):
    fast, slow = (
        {name: each[:count] for name, each in columns.items()} for columns in (FAST, SLOW)
    )
    judgement = judged(group("g1", TWO, fast, EVEN), group("g0", ONE, slow))
    assert judgement.decision == "tune"
    assert "measure at least 3 repeats of each group" in judgement.next_steps


@pytest.mark.parametrize("tail", ["p95_ms", "p99_ms"])
def test_a_gain_in_the_mean_with_longer_tails_is_tuned(tail):
    longer = times(0.5, **{tail: (4000.0, 4010.0, 4020.0)})
    judgement = judged(group("g1", TWO, longer, EVEN))
    assert judgement.decision == "tune"
    assert f"worse: {tail} 4,010 against" in judgement.reason


def test_longer_tails_without_any_gain_are_rejected():
    same = {**SLOW, "e2e_ms": (999.0, 1021.0, 1037.0), "p99_ms": (4000.0, 4050.0, 4100.0)}
    judgement = judged(group("g1", TWO, same, EVEN))
    assert judgement.logic.decision == "accept"
    assert judgement.decision == "reject"
    assert judgement.reason.startswith("longer tails and no gain: p99_ms")


def test_requests_that_are_lost_in_every_repeat_reject_it():
    lossy = times(0.5, success_rate=(0.9, 0.9, 0.9))
    judgement = judged(group("g1", TWO, lossy, EVEN))
    assert figure(judgement, "success_rate").verdict == WORSE
    assert (judgement.decision, judgement.reason.split(":")[0]) == ("reject", "requests are lost")


def test_a_lost_request_within_the_noise_is_tuned():
    lossy = times(0.5, success_rate=(1.0, 1.0, 0.99))
    judgement = judged(group("g1", TWO, lossy, EVEN))
    assert judgement.decision == "tune"
    assert "success_rate is 0.9967, below 1" in judgement.reason


@pytest.mark.parametrize(
    ("loads", "reason"),
    [
        ((50_000, 7_600), "imbalance_ratio 1.472 is above 0.8"),
        ((), "the load of each replica is not known, which counts as 1"),
    ],
)
def test_an_uneven_or_unknown_load_is_tuned_as_the_lesson_does(loads, reason):
    judgement = judged(group("g1", TWO, FAST, loads))
    assert (judgement.logic.decision, judgement.decision) == ("tune", "tune")
    assert reason in judgement.reason


def test_a_hand_off_is_held_against_the_service_time_of_a_request():
    """10 ms of (1020 - 310) ms is 0.0141; 40 ms is 0.0563, above the lesson's 0.05."""
    cheap = judged(group("g2", SPLIT, MOVED, (51_200, 6_400)))
    assert cheap.decision == "accept"
    assert cheap.logic.checks[2].value == pytest.approx(10 / 710)
    dear = judged(group("g2", SPLIT, {**MOVED, "kv_handoff_ms": (40.0,) * 3}, (51_200, 6_400)))
    assert dear.decision == "tune"
    assert "hand-off takes 0.0563 of a request's service time, above 0.05" in dear.reason


def test_an_unknown_hand_off_is_not_accepted():
    silent = {**MOVED, "kv_handoff_ms": (None,) * 3}
    assert judged(group("g2", SPLIT, silent, (51_200, 6_400))).decision == "tune"


@pytest.mark.parametrize("name", ["ttft_ms", "tpot_ms", "p95_ms", "throughput_tokens_per_s"])
def test_a_figure_that_is_needed_and_unknown_is_tuned_with_its_reason(name):
    judgement = judged(group("g1", TWO, {**FAST, name: (None,) * 3}, EVEN))
    assert judgement.decision == "tune"
    assert f"{name} is not known: prefill and decode are not apart" in judgement.reason


def test_without_any_time_nothing_is_accepted():
    for columns in ({**FAST, "e2e_ms": (None,) * 3}, FAST):
        slow = SLOW if columns is not FAST else {**SLOW, "e2e_ms": (None,) * 3}
        judgement = judged(group("g1", TWO, columns, EVEN), group("g0", ONE, slow))
        assert judgement.decision == "reject"
        assert judgement.reason.startswith("e2e_ms is not known")


def test_caches_that_were_not_reset_are_not_accepted():
    warm = with_repeats(group("g1", TWO, FAST, EVEN), cache="carried")
    judgement = judged(warm, with_repeats(group("g0", ONE, SLOW), cache="carried"))
    assert judgement.decision == "tune"
    assert "caches were not reset before each repeat" in judgement.reason


def test_what_neither_file_states_is_not_accepted():
    unknown = Comparable(("replicas",), (), ("model_revision",))
    judgement = judged(group("g1", TWO, FAST, EVEN), comparable=unknown)
    assert judgement.decision == "tune"
    assert "neither file states model_revision" in judgement.reason


def test_objectives_that_are_missed_are_not_accepted():
    missed = Goodput(objectives=Objectives(attainment=0.95), offered=10, met=9, fraction=0.9)
    judgement = judged(group("g1", TWO, FAST, EVEN, goodput=missed))
    assert judgement.decision == "tune"
    assert "goodput_fraction is 0.9, below 0.95" in judgement.reason


def test_memory_is_held_against_a_limit_where_there_is_one():
    rule = Rule(Limits(0.8, 0.05), max_memory_mb=99.0)
    judgement = judged(group("g1", TWO, FAST, EVEN), rule=rule)
    assert judgement.decision == "tune"
    assert "peak_memory_mb is 100, above 99" in judgement.reason


def test_where_arrivals_wait_for_answers_the_time_is_that_of_all_requests():
    closed = change(WORKLOAD, load="closed")
    slow = group("g0", ONE, SLOW, workload=closed)
    fast = with_repeats(group("g1", TWO, FAST, EVEN, workload=closed), makespan_ms=13_000.0)
    judgement = judged(fast, slow)
    assert (judgement.time, judgement.decision) == ("makespan_ms", "accept")
    assert judged(group("g1", TWO, FAST, EVEN, workload=closed), slow).decision == "reject"


means, spreads = st.floats(1.0, 1e4), st.sampled_from([0.0, 0.001, 0.3])
three = st.tuples(means, spreads).map(lambda m: (m[0], m[0] * (1 + m[1]), m[0] * (1 - m[1])))


@given(
    e2e=three,
    slow=three,
    loads=st.tuples(st.integers(0, 100_000), st.integers(0, 100_000)),
    handoff=st.floats(0.0, 200.0),
    split=st.booleans(),
    cache=st.sampled_from(["reset", "carried"]),
)
def test_the_measured_verdict_is_never_looser_than_the_lessons(
    e2e, slow, loads, handoff, split, cache
):
    columns = {**FAST, "e2e_ms": e2e, "kv_handoff_ms": (handoff,) * 3}
    layout, ratio = (SPLIT, 0.0) if split else (TWO, imbalance(loads))
    baseline = group("g0", ONE, {**SLOW, "e2e_ms": slow, "queue_wait_ms": (0.0,) * 3})
    candidate = with_repeats(group("g", layout, columns, loads), cache=cache)
    mean, base = sum(e2e) / 3, sum(slow) / 3
    lesson = decide(base, Candidate(mean, ratio, handoff if split else 0.0), RULE.limits)
    measured = judged(candidate, baseline)
    assert STRICTER.index(measured.decision) <= STRICTER.index(lesson.decision)


def imbalance(loads):
    mean = sum(loads) / 2
    return (max(loads) - min(loads)) / mean if mean else 0.0
