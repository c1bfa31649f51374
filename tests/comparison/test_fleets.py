"""The same requests through several policies on replicas that batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pointsman import POLICIES, InputError, workload_of_columns
from pointsman.comparison.fleet_advice import advise_on_fleet
from pointsman.comparison.fleets import Trial, compare_on_fleet
from pointsman.costs.calibrated import read_calibrated
from pointsman.fleet.description import FleetDescription, Link
from pointsman.fleet.groups import Group, Limits, Recorded
from pointsman.metrics.goodput import Objectives
from pointsman.policies.policy import policy
from pointsman.sim.conditions import Change, Conditions
from tests.fleet.cost_files import write_costs

ROUND_ROBIN = POLICIES["round_robin"]
FOUR = workload_of_columns([0.0] * 4, prompt_tokens=[100] * 4, output_tokens=[1] * 4)


@policy(rule="r", source="s", reasons=("first",), reads=())
def first(request, view, parameters):
    return 0, 0


@policy(rule="r", source="s", reasons=("turn",), reads=("queue",))
def in_turn(request, view, parameters):
    return request.sequence % view.shape[1], 0


@pytest.fixture
def two(tmp_path) -> FleetDescription:
    """Two replicas: 10 ms an iteration and 0.1 a prompt token."""
    path = write_costs(tmp_path / "costs.json")
    return FleetDescription(
        groups=(Group(count=2, hardware=Recorded("costs.json", read_calibrated(path))),)
    )


def conversation(requests: int, rate_rps: float):
    rng = np.random.default_rng(7)
    return workload_of_columns(
        np.cumsum(rng.exponential(1000.0 / rate_rps, requests)),
        prompt_tokens=rng.integers(50, 400, requests),
        output_tokens=rng.integers(1, 20, requests),
    )


def test_policies_are_sorted_by_goodput_and_held_against_the_best(two):
    """On one replica: 20 ms, then three prefills in 40. On two: 20 ms each, twice."""
    trial = Trial(objectives=Objectives(ttft_ms=40.0))
    comparison = compare_on_fleet(FOUR, [first, ROUND_ROBIN], two, trial)
    best, other = comparison.results
    assert (best.policy, other.policy) == (ROUND_ROBIN, first)
    assert (best.metrics.goodput.fraction, other.metrics.goodput.fraction) == (1.0, 0.25)
    assert comparison.baseline is ROUND_ROBIN
    assert best.to_baseline == ()
    estimates = {each.figure: each.interval.estimate for each in other.to_baseline}
    assert estimates == pytest.approx(
        {"goodput_fraction": -0.75, "p95_ttft_ms": 20.0, "mean_ttft_ms": 20.0, "mean_e2e_ms": 20.0}
    )


def test_parameters_are_named_only_where_they_tell_policies_apart(two):
    slack = POLICIES["locality_aware"]
    one = compare_on_fleet(FOUR, [slack, first], two, Trial())
    assert {each.name for each in one.results} == {"locality_aware", "first"}
    both = compare_on_fleet(FOUR, [slack, slack.bind(slack_ms=9)], two, Trial())
    assert {each.name for each in both.results} == {
        "locality_aware(slack_ms=5)",
        "locality_aware(slack_ms=9)",
    }


def test_without_objectives_the_shortest_p95_ttft_is_first(two):
    comparison = compare_on_fleet(FOUR, [first, ROUND_ROBIN], two, Trial())
    assert [each.metrics.ttft_ms.p95 for each in comparison.results] == [40.0, 60.0]
    assert comparison.results[0].metrics.goodput is None


def test_a_baseline_is_named_by_its_name_or_label(two):
    slack = POLICIES["locality_aware"].bind(slack_ms=7)
    trial = Trial(baseline="locality_aware")
    comparison = compare_on_fleet(FOUR, [first, slack], two, trial)
    assert comparison.baseline is slack
    named = {each.policy.name: each.to_baseline for each in comparison.results}
    assert named["locality_aware"] == ()
    assert len(named["first"]) == 3
    labelled = replace(trial, baseline="locality_aware(slack_ms=7)")
    assert compare_on_fleet(FOUR, [slack], two, labelled).baseline is slack


@pytest.mark.parametrize(
    ("policies", "baseline", "message"),
    [
        ([], None, "no policy"),
        ([first, first], None, "each policy once"),
        ([ROUND_ROBIN], "round_robbin", "did you mean round_robin"),
        (
            [POLICIES["locality_aware"], POLICIES["locality_aware"].bind(slack_ms=9)],
            "locality_aware",
            r"expected one policy's label: locality_aware\(slack_ms=5\), locality_aware\(slack_ms",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(two, policies, baseline, message):
    with pytest.raises(InputError, match=message):
        compare_on_fleet(FOUR, policies, two, Trial(baseline=baseline))


def test_nothing_tells_a_policy_from_its_own_double(two):
    """A against A: the interval is nothing, and no policy is named."""
    workload = conversation(400, 20.0)
    comparison = compare_on_fleet(workload, [ROUND_ROBIN, in_turn], two, Trial())
    (_, other) = comparison.results
    assert all(each.interval.low == each.interval.high == 0.0 for each in other.to_best)
    advice = advise_on_fleet(comparison)
    assert (advice.policy, advice.label) == (None, None)
    assert advice.sentence.startswith("Nothing on this workload tells round_robin from in_turn")
    assert advice.sentence.endswith("Of these, round_robin reads the fewest signals.")


def test_a_policy_that_is_slower_is_told_from_the_other(two):
    """Everything on one of two replicas, at a rate that keeps two of them half busy."""
    comparison = compare_on_fleet(conversation(400, 20.0), [first, ROUND_ROBIN], two, Trial())
    advice = advise_on_fleet(comparison)
    assert advice.policy == "round_robin"
    assert advice.sentence.startswith("Take round_robin: P95 TTFT ")


def test_the_same_arguments_give_the_same_comparison(two):
    workload = conversation(200, 20.0)
    runs = [
        compare_on_fleet(workload, [POLICIES["random"], ROUND_ROBIN], two, Trial(seed=3))
        for _ in range(2)
    ]
    assert [each.metrics for each in runs[0].results] == [each.metrics for each in runs[1].results]
    assert [each.to_best for each in runs[0].results] == [each.to_best for each in runs[1].results]


def test_rejected_and_failed_requests_are_counted_and_said(two):
    """1,700 tokens fit no cache of 1,600; with one replica of one dead, the last one fails."""
    workload = workload_of_columns(
        [0.0, 0.0, 1000.0], prompt_tokens=[1700, 100, 100], output_tokens=[1, 1, 1]
    )
    (group,) = two.groups
    dying = replace(
        two,
        groups=(replace(group, count=1),),
        conditions=Conditions(changes=(Change(500.0, 0, "dies"),)),
    )
    comparison = compare_on_fleet(workload, [first], dying, Trial(objectives=Objectives(1e6)))
    (result,) = comparison.results
    assert result.metrics.statuses == {"finished": 1, "failed": 1, "rejected": 1}
    assert result.metrics.goodput.fraction == pytest.approx(1 / 3)
    assert "Failed or rejected: first 2;" in advise_on_fleet(comparison).sentence


def test_where_nothing_finishes_nothing_is_told(two):
    huge = workload_of_columns([0.0] * 4, prompt_tokens=[1700] * 4, output_tokens=[1] * 4)
    comparison = compare_on_fleet(huge, [first, ROUND_ROBIN], two, Trial())
    assert all(each.metrics.ttft_ms.p95 is None for each in comparison.results)
    assert advise_on_fleet(comparison).policy is None


def test_three_requests_are_too_few_for_an_interval(two):
    few = workload_of_columns([0.0] * 3, prompt_tokens=[100] * 3, output_tokens=[1] * 3)
    comparison = compare_on_fleet(few, [first, ROUND_ROBIN], two, Trial())
    assert all(each.interval is None for each in comparison.results[1].to_best)
    assert "too few requests for an interval" in advise_on_fleet(comparison).sentence


def test_a_trace_without_tokens_is_refused(two):
    timed = workload_of_columns([0.0], service_ms=[5.0])
    with pytest.raises(
        InputError, match="prompt_tokens is missing, output_tokens is missing; expected"
    ):
        compare_on_fleet(timed, [first], two, Trial())


def test_a_block_size_that_does_not_divide_is_refused(two):
    chained = workload_of_columns(
        [0.0],
        prompt_tokens=[48],
        output_tokens=[1],
        chain_start=[0, 1],
        chain_blocks=[0],
        block_size_tokens=24,
    )
    with pytest.raises(InputError, match="block_size is 16; expected a divisor or a multiple"):
        compare_on_fleet(chained, [first], replace(two, block_size=16), Trial())


def test_pools_of_a_split_fleet_have_skews_of_their_own(two):
    """Two prefill replicas in turn, one decode replica: even in each pool."""
    (group,) = two.groups
    split = replace(
        two,
        groups=(replace(group, role="prefill"), replace(group, count=1, role="decode")),
        link=Link(gb_per_s=1000, kv_bytes_per_token=1),
    )
    workload = workload_of_columns([0.0] * 4, prompt_tokens=[100] * 4, output_tokens=[5] * 4)
    comparison = compare_on_fleet(workload, [ROUND_ROBIN], split, Trial())
    (result,) = comparison.results
    assert {pool: each.requests for pool, each in result.skews.items()} == {
        "prefill": 0.0,
        "decode": 0.0,
    }
    assert [replica.requests for replica in result.replicas] == [2, 2, 4]


def test_costs_outside_their_range_are_warned_of(two, tmp_path):
    path = write_costs(tmp_path / "narrow.json", limits={"prompt_tokens": 50})
    narrow = Group(
        count=1,
        hardware=Recorded("narrow.json", read_calibrated(path)),
        limits=Limits(kv_blocks=100),
    )
    comparison = compare_on_fleet(FOUR, [first], FleetDescription(groups=(narrow,)), Trial())
    assert comparison.warnings == (
        "narrow.json: prompt_tokens is 100 and the costs were fitted up to 50 tokens",
    )
    assert compare_on_fleet(FOUR, [first], two, Trial()).warnings == ()
