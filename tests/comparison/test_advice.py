"""The one sentence: which policy, and why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pointsman import POLICIES, FifoFleet, ServiceMetrics, workload_of_columns
from pointsman.comparison.advice import advise
from pointsman.comparison.policies import Comparison, PolicyResult, compare_policies

WORKLOAD = workload_of_columns([float(i) for i in range(100)], service_ms=[1.0] * 100)
FEW = workload_of_columns([0.0] * 99, service_ms=[1.0] * 99)


def result(name: str, wait_ms: float, latency_ms: float, **figures: float) -> PolicyResult:
    metrics = ServiceMetrics(1, p95_queue_wait_ms=wait_ms, p95_latency_ms=latency_ms, **figures)
    return PolicyResult(POLICIES[name], metrics, {}, [])


def comparison(*results: PolicyResult, workload=WORKLOAD) -> Comparison:
    return Comparison(workload, FifoFleet(1), 0, results)


def test_the_shortest_p95_latency_wins_over_the_shortest_wait():
    advice = advise(comparison(result("queue_aware", 80, 250), result("locality_aware", 100, 200)))
    assert advice.policy == "locality_aware"
    assert advice.label == "locality_aware(slack_ms=5)"
    assert advice.sentence == (
        "Take locality_aware(slack_ms=5): P95 latency 200.0 ms against 250.0 ms (queue_aware),"
        " at the price of a P95 queue wait of 100.0 ms against 80.0 ms with queue_aware."
    )


def test_why_names_what_speaks_for_the_choice_and_the_price_what_speaks_against():
    ours = result("locality_aware", 100, 200, cached_token_fraction=0.3, busy_skew_ratio=0.9)
    theirs = result("queue_aware", 150, 250, cached_token_fraction=0.1, busy_skew_ratio=0.1)
    assert advise(comparison(ours, theirs)).sentence.partition(". ")[2] == (
        "Why: 30.0% of the prompt tokens found in a cache against 10.0% with queue_aware,"
        " a P95 queue wait of 100.0 ms against 150.0 ms,"
        " at the price of a busy-time skew of 0.90 against 0.10."
    )


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ({"cache_hit_rate": 0.504}, "cached prefix"),  # half a percentage point is equal
        ({"busy_skew_ratio": 0.019}, "skew"),
    ],
)
def test_equal_figures_are_no_reasons(figures, words):
    ours = result("queue_aware", 10, 200, **{"cache_hit_rate": 0.5, **figures})
    theirs = result("round_robin", 50, 300, cache_hit_rate=0.5)
    assert words not in advise(comparison(ours, theirs)).sentence


def test_latencies_within_two_per_cent_are_equal_and_the_wait_decides_and_leads():
    advice = advise(comparison(result("queue_aware", 90, 303), result("locality_aware", 100, 300)))
    assert advice.policy == "queue_aware"
    assert advice.sentence == (
        "Take queue_aware: P95 queue wait 90.0 ms against 100.0 ms (locality_aware(slack_ms=5)),"
        " at P95 latencies within 2%."
    )


def test_a_slower_policy_is_named_after_the_one_that_only_waits_longer():
    three = comparison(
        result("queue_aware", 90, 300), result("random", 100, 300), result("round_robin", 200, 500)
    )
    assert advise(three).sentence == (
        "Take queue_aware: P95 queue wait 90.0 ms against 100.0 ms (random), at P95 latencies"
        " within 2%; P95 latency 300.0 ms against 500.0 ms (round_robin)."
    )


def test_equal_in_both_the_fewest_signals_win():
    three = comparison(
        result("locality_aware", 10, 20), result("queue_aware", 10, 20), result("random", 90, 99)
    )
    advice = advise(three)
    assert advice.policy == "queue_aware"
    assert "; locality_aware(slack_ms=5) within 2% of it. Why: " in advice.sentence


def test_few_requests_are_said_to_be_few():
    two = comparison(result("queue_aware", 1, 10), result("random", 50, 60))
    assert "Few requests" not in advise(two).sentence
    assert "Few requests (99)" in advise(replace(two, workload=FEW)).sentence


def test_a_workload_that_does_not_tell_is_said_not_to():
    same = compare_policies(WORKLOAD, [POLICIES["round_robin"], POLICIES["random"]], FifoFleet(1))
    advice = advise(same)
    assert (advice.policy, advice.label) == (None, None)
    assert advice.sentence.startswith("No policy to prefer")


def test_one_policy_alone_is_not_recommended():
    alone = compare_policies(WORKLOAD, [POLICIES["random"]], FifoFleet(1))
    assert advise(alone).policy is None
