"""Whole plans, on hardware whose queues can be worked out.

A replica serves one prompt of 100 tokens in 10 ms. Arrivals at equal distances that take turns
wait for nobody while a replica gets one in 10 ms or more, and wait ever longer else.
"""

from __future__ import annotations

import os
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from pointsman import InputError, MachineError, generate, workload_of_columns
from pointsman.costs.iteration import IterationCosts
from pointsman.metrics.goodput import objectives_of
from pointsman.plan.advice import advise
from pointsman.plan.parallel import Workers
from pointsman.plan.plan import How, Plan, make_plan
from pointsman.workload.arrivals import PoissonArrivals
from pointsman.workload.distributions import Constant
from pointsman.workload.generate import Traffic
from tests.plan import made

ONE = Workers(jobs=1)
WHOLE = How(kinds=("replicas",), workers=ONE)


def planned(workload, hardware, question=None, how=WHOLE) -> Plan:
    workloads = workload if isinstance(workload, tuple) else (workload,)
    return make_plan(workloads, hardware, question or made.question(), how)


def result(plan: Plan, label: str):
    (found,) = [each for each in plan.results if each.shape.label == label]
    return found


def test_the_fewest_gpus_that_keep_the_objectives_come_first():
    """One in 4 ms: three replicas get one in 12 ms each, and hold up to 12 / 10 times the rate."""
    plan = planned(made.steady(4.0), made.hardware(5))
    labels = [each.shape.label for each in plan.results]
    assert labels == ["3xTP1", "4xTP1", "5xTP1", "2xTP1", "1xTP1"]
    for replicas in (3, 4, 5):
        limit = result(plan, f"{replicas}xTP1").limit
        assert limit.held * 0.96 <= replicas * 4.0 / 10.0 <= limit.failed * 1.04
    assert plan.baseline.shape.label == "1xTP1"
    assert plan.simulations == sum(each.simulations for each in plan.results)


def test_the_lessons_figures_are_there():
    """400 prompts of 10 ms on one replica: 4,000 ms; on two, half of it and the last gap."""
    plan = planned(made.steady(2.0), made.hardware(2))
    assert plan.baseline.metrics.serving.makespan_ms == pytest.approx(4000.0)
    pair = result(plan, "2xTP1").metrics
    assert pair.serving.makespan_ms == pytest.approx(2002.0)
    assert pair.throughput_req_per_ms == pytest.approx(400 / 2002.0)
    assert pair.imbalance_ratio == pytest.approx(0.0)


@pytest.mark.parametrize("load", [0.85, 0.93, 0.99, 1.03, 1.1, 1.2])
def test_no_verdict_stands_where_a_quarter_more_or_less_service_time_turns_it(load):
    """Two replicas at this load: 0.8 of it is below 1 and 1.25 of it above, so the objectives are
    kept in the one world and missed in the other."""
    plan = planned(
        made.steady(5.0 / load), made.hardware(2), made.question(model_error_fraction=0.25)
    )
    judgement = result(plan, "2xTP1").judgement
    assert (judgement.decision, judgement.near_saturation) == ("tune", True)
    distance = 1.0 / load - 1.0 if load <= 1.0 else load - 1.0
    assert judgement.undecided_error_fraction == pytest.approx(distance, abs=0.045)
    assert "near saturation" in judgement.reason


@pytest.mark.parametrize(("load", "decision"), [(0.7, "accept"), (1.4, "tune")])
def test_far_from_saturation_the_verdict_stands(load, decision):
    plan = planned(
        made.steady(5.0 / load), made.hardware(2), made.question(model_error_fraction=0.25)
    )
    judgement = result(plan, "2xTP1").judgement
    assert (judgement.decision, judgement.near_saturation) == (decision, False)


def test_a_shape_against_one_that_does_the_same_is_no_winner():
    """One in 20 ms: a second replica changes nothing, and the interval says so."""
    plan = planned(made.steady(20.0), made.hardware(2))
    found = result(plan, "2xTP1")
    ratio = found.difference.e2e_ratio
    assert (ratio.low, ratio.high) == pytest.approx((1.0, 1.0))
    assert found.judgement.decision == "tune"
    assert advise(plan).sentence.startswith("Keep 1xTP1")


def test_replications_of_a_generated_workload_pair_the_seeds():
    traffic = Traffic(300, PoissonArrivals(140.0), Constant(100), Constant(1))
    workloads = tuple(generate(traffic, seed) for seed in range(4))
    plan = planned(workloads, made.hardware(3))
    found = result(plan, "3xTP1")
    assert found.difference.n == 4
    assert found.difference.e2e_ratio.high < 1.0
    # One run an offered rate and policy, three further seeds, and what the search needed.
    assert found.simulations >= 4


def test_the_verdict_follows_from_the_model_and_says_why():
    """The same trace: where a prompt takes 10 ms one replica is too slow, at 1.9 ms it is not."""
    dear = planned(made.steady(7.0), made.hardware(2))
    cheap = planned(made.steady(7.0), made.hardware(2, IterationCosts(1.0, 0.009, 0.0, 0.0)))
    one, other = (result(plan, "2xTP1").judgement for plan in (dear, cheap))
    assert (one.decision, other.decision) == ("accept", "tune")
    assert "makespan 2,803 ms against the baseline's 4,000 ms" in one.reason
    assert "the interval on latencies does not support reject" in other.reason
    assert "no gain: makespan 2,795 ms against the baseline's 2,795 ms" in other.reason


def groups_of_prompts():
    """Four system prompts of 40 blocks, 25 ms apart, in an order that shows each of two
    replicas all four before one returns."""
    order = np.tile([0, 1, 2, 3, 1, 0, 3, 2], 50)
    chains = (order[:, None] * 40 + np.arange(40)).reshape(-1)
    return workload_of_columns(
        25.0 * np.arange(400),
        prompt_tokens=np.full(400, 641),
        output_tokens=np.full(400, 1),
        chain_start=40 * np.arange(401),
        chain_blocks=chains,
        block_size_tokens=16,
    )


def test_the_fewest_gpus_that_do_depend_on_the_policy():
    """A prompt takes 65 ms uncached and 1.1 ms cached; a cache holds two of the four prompts.

    Who takes turns finds nothing in the cache of two replicas: 65 ms of work in 50 ms. Who goes
    where the prefix is, finds it after the first round.
    """
    hardware = made.hardware(4, IterationCosts(1.0, 0.1, 0.0, 0.0), kv_blocks=90)
    fewest = {}
    for policy in ("round_robin", "locality_aware:slack_ms=1000"):
        asked = made.question(objectives_of(["ttft:150"]), policies=(policy,), attainment=0.9)
        plan = planned(groups_of_prompts(), hardware, asked)
        first = plan.results[0]
        assert first.metrics.serving.goodput.fraction >= 0.9
        fewest[policy.partition(":")[0]] = first.shape.replicas
    assert fewest == {"round_robin": 3, "locality_aware": 2}


def test_of_several_policies_the_one_that_holds_most_is_taken_and_all_are_listed():
    hardware = made.hardware(2, IterationCosts(1.0, 0.1, 0.0, 0.0), kv_blocks=90)
    texts = ("round_robin", "locality_aware:slack_ms=1000")
    asked = made.question(objectives_of(["ttft:150"]), policies=texts, attainment=0.9)
    plan = planned(groups_of_prompts(), hardware, asked)
    found = result(plan, "2xTP1")
    assert found.policy == "locality_aware(slack_ms=1000)"
    assert [each.policy for each in found.tried] == [found.policy, "round_robin"]
    assert [each.policy for each in plan.baseline.tried] == ["round_robin"]  # nothing to choose


def test_a_policy_that_spreads_too_unevenly_gives_way_to_one_that_does_not(tmp_path):
    """Two replicas, one in 20 ms: the first alone does all of it at no loss, and is all alone."""
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from pointsman.policies.policy import policy\n"
        "@policy(rule='r', source='s', reasons=('first',), reads=())\n"
        "def first(request, view, parameters):\n"
        "    return 0, 0\n"
    )
    asked = made.question(policies=(f"{mine}:first", "round_robin"))
    found = result(planned(made.steady(20.0), made.hardware(2), asked), "2xTP1")
    assert found.policy == "round_robin"
    assert {each.policy: each.limit is None for each in found.tried} == {
        "first": True,
        "round_robin": False,
    }


def test_lengths_beyond_the_calibrated_range_are_refused_with_the_range():
    with pytest.raises(InputError, match="prompt_tokens is 100 and the costs were fitted up to 50"):
        planned(made.steady(5.0), made.hardware(2, prompt_tokens=50))


def test_shapes_beyond_the_calibrated_rate_are_not_ranked_and_say_the_range():
    """200 requests/s: one replica gets 200 and two 100 each; 120 were seen."""
    hardware = made.hardware(3, rate_rps=120.0)
    with pytest.raises(
        InputError, match=r"baseline 1xTP1 is outside .* fitted up to 120 requests/s"
    ):
        planned(made.steady(5.0), hardware)
    plan = planned(made.steady(5.0), hardware, how=replace(WHOLE, baseline="2xTP1"))
    assert [each.shape.label for each in plan.results] == ["2xTP1", "3xTP1"]
    assert [(each.shape, each.reason) for each in plan.refused] == [
        ("1xTP1", "rate_rps is 200 and the costs were fitted up to 120 requests/s")
    ]
    assert result(plan, "3xTP1").limit.held == pytest.approx(1.5, abs=0.031)  # D/D/1: 30 / 20


def test_the_search_ends_where_the_calibrated_rates_end():
    """Two replicas get 50 each and hold 100 each, but 75 were seen."""
    hardware = made.hardware(2, rate_rps=75.0)
    plan = planned(made.steady(10.0), hardware, how=replace(WHOLE, baseline="2xTP1"))
    assert plan.baseline.limit.held == pytest.approx(1.5)
    assert plan.baseline.limit.failed is None


def test_another_baseline_can_be_named_and_is_not_judged_against_itself():
    plan = planned(made.steady(4.0), made.hardware(4), how=replace(WHOLE, baseline="2xTP1"))
    assert plan.baseline.shape.label == "2xTP1"
    assert [each.shape.label for each in plan.results if each.judgement is None] == ["2xTP1"]
    one = result(plan, "1xTP1").judgement
    assert (one.decision, one.next_action) == ("reject", "fallback_to_single_replica_audit")


def test_a_split_is_planned_beside_whole_replicas():
    hardware = made.hardware(2)
    plan = planned(
        made.steady(4.0), hardware, how=replace(WHOLE, kinds=("replicas", "disaggregated"))
    )
    split = result(plan, "1P1DxTP1")
    assert split.shape.kind == "disaggregated"
    assert split.metrics.handoff_total_bytes > 0


def test_the_pareto_front_has_whoever_nobody_beats_in_both():
    plan = planned(made.steady(4.0), made.hardware(4))
    front = {each.shape.label for each in plan.pareto}
    points = {
        each.shape.label: (
            each.at_limit.serving.output_tokens_per_s_per_gpu,
            each.at_limit.serving.e2e_ms.p95,
        )
        for each in plan.results
    }
    for label, (tokens, latency_ms) in points.items():
        beaten = any(
            other != (tokens, latency_ms) and other[0] >= tokens and other[1] <= latency_ms
            for other in points.values()
        )
        assert (label in front) != beaten


def test_processes_give_the_same_results_as_one():
    alone = planned(made.steady(4.0), made.hardware(4))
    together = planned(made.steady(4.0), made.hardware(4), how=replace(WHOLE, workers=Workers(2)))
    assert msgspec.json.encode(alone.results) == msgspec.json.encode(together.results)


def test_a_policy_of_the_users_own_file_is_planned_with(tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from pointsman.policies.policy import policy\n"
        "@policy(rule='r', source='s', reasons=('first',), reads=())\n"
        "def first(request, view, parameters):\n"
        "    return 0, 0\n"
    )
    asked = made.question(policies=(f"{mine}:first",))
    plan = planned(made.steady(4.0), made.hardware(3), asked, replace(WHOLE, workers=Workers(2)))
    assert {each.policy for each in plan.results} == {"first"}
    assert result(plan, "3xTP1").metrics.imbalance_ratio == pytest.approx(3.0)  # all on one


def test_a_process_that_dies_is_one_clear_error(tmp_path):
    """The policy's file ends every process that loads it but this one."""
    mine = tmp_path / "mine.py"
    mine.write_text(
        "import os\n"
        "from pointsman.policies.policy import policy\n"
        f"if os.getpid() != {os.getpid()}:\n"
        "    os._exit(1)\n"
        "@policy(rule='r', source='s', reasons=('first',), reads=())\n"
        "def first(request, view, parameters):\n"
        "    return 0, 0\n"
    )
    asked = made.question(policies=(f"{mine}:first",))
    with pytest.raises(MachineError, match="one of its processes was ended"):
        planned(made.steady(4.0), made.hardware(4), asked, replace(WHOLE, workers=Workers(3)))


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        (workload_of_columns([0.0, 1.0], service_ms=[1.0, 1.0]), "request 0 has no known number"),
        (made.steady(0.0), "400 requests over 0 ms"),
        (made.steady(1.0, requests=1), "1 requests over 0 ms; expected at least 2"),
        (
            workload_of_columns(
                [0.0, 1.0],
                prompt_tokens=[24, 24],
                output_tokens=[1, 1],
                chain_start=[0, 1, 2],
                chain_blocks=[0, 0],
                prefix_tokens=[24, 24],
                block_size_tokens=24,
            ),
            "block_size is 16; expected a divisor or a multiple of the trace's 24 tokens",
        ),
    ],
)
def test_a_workload_that_cannot_be_planned_for_is_refused_before_anything_runs(workload, message):
    with pytest.raises(InputError, match=message):
        planned(workload, made.hardware(2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attainment": 1.1}, "attainment is 1.1"),
        ({"model_error_fraction": 1.0}, "model_error is 1.0"),
        ({"resamples": 1}, "replications is 1"),
        ({"policies": ()}, "no policy"),
        ({"policies": ("queue_awre",)}, "did you mean queue_aware"),
        ({"policies": ("random", "random")}, "expected each policy once"),
    ],
)
def test_a_question_outside_its_range_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        made.question(**changes)
