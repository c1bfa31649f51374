"""The one sentence: which policy, and why."""

from __future__ import annotations

from pointsman import POLICIES, FifoFleet, ServiceMetrics, workload_of_columns
from pointsman.comparison.advice import advise
from pointsman.comparison.policies import Comparison, PolicyResult, compare_policies

WORKLOAD = workload_of_columns([0.0], service_ms=[1.0])


def comparison(**figures: tuple[float, float]) -> Comparison:
    """Policies with (P95 wait, P95 latency), the best first."""
    results = tuple(
        PolicyResult(
            POLICIES[name],
            ServiceMetrics(1, p95_queue_wait_ms=wait_ms, p95_latency_ms=latency_ms),
            {},
            [],
        )
        for name, (wait_ms, latency_ms) in figures.items()
    )
    return Comparison(WORKLOAD, FifoFleet(1), 0, results)


def test_the_shortest_p95_latency_wins_over_the_shortest_wait():
    advice = advise(comparison(queue_aware=(80, 250), locality_aware=(100, 200)))
    assert advice.policy == "locality_aware"
    assert "P95 latency 200.0 ms against 250.0 ms (queue_aware)" in advice.sentence
    assert "P95 queue wait is 100.0 ms against 80.0 ms" in advice.sentence


def test_latencies_within_two_per_cent_are_equal_and_the_wait_decides():
    advice = advise(comparison(queue_aware=(90, 303), locality_aware=(100, 300)))
    assert advice.policy == "queue_aware"


def test_equal_in_both_the_fewest_signals_win():
    advice = advise(comparison(locality_aware=(10, 20), queue_aware=(10, 20), round_robin=(90, 99)))
    assert advice.policy == "queue_aware"
    assert "locality_aware(slack_ms=5) within 2% of it" in advice.sentence


def test_a_workload_that_does_not_tell_is_said_not_to():
    same = compare_policies(WORKLOAD, [POLICIES["round_robin"], POLICIES["random"]], FifoFleet(1))
    advice = advise(same)
    assert advice.policy is None
    assert advice.sentence.startswith("No policy to prefer")


def test_one_policy_alone_is_not_recommended():
    alone = compare_policies(WORKLOAD, [POLICIES["random"]], FifoFleet(1))
    assert advise(alone).policy is None
