"""The contract of the lesson on distributed inference, and what it leaves open."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman import (
    POLICIES,
    FifoFleet,
    InputError,
    StageCosts,
    estimate_request_cost,
    recommend_distributed_inference_run,
    simulate,
    simulate_distributed_inference,
    workload_of_columns,
)
from pointsman.comparison.estimate import estimate

CONFIG = {
    "prefill_ms_per_token": 0.01,
    "decode_ms_per_token": 0.02,
    "comm_ms_per_token": 0.03,
    "pipeline_penalty_ms": 0.25,
    "tp_degree": 2,
    "pp_stages": 1,
}
SPLIT = {
    **CONFIG,
    "serving_mode": "pd_disaggregated",
    "kv_bytes_per_token": 16,
    "handoff_base_ms": 0.2,
    "handoff_bytes_per_ms": 1024,
}
REQUESTS = [
    {"prompt_tokens": 128, "generate_tokens": 64},
    {"prompt_tokens": 64, "generate_tokens": 32},
]


# The lesson's own assertions.


def test_the_ledger_of_one_request():
    cost = estimate_request_cost(REQUESTS[0], CONFIG)
    assert cost["prefill_ms"] == pytest.approx(1.28, abs=0.005)
    assert cost["decode_ms"] == pytest.approx(1.28, abs=0.005)
    assert cost["comm_ms"] == pytest.approx(0.06, abs=0.005)
    assert cost["total_ms"] == pytest.approx(2.62, abs=0.005)


def test_the_ledger_of_a_split_request_has_the_hand_off():
    cost = estimate_request_cost(REQUESTS[0], SPLIT)
    assert cost["handoff_bytes"] == 2048
    assert cost["handoff_ms"] == pytest.approx(2.2, abs=0.005)
    assert cost["total_ms"] == pytest.approx(4.82, abs=0.005)


def test_a_burst_on_two_replicas():
    summary = simulate_distributed_inference(REQUESTS, 2, CONFIG)
    assert summary["routing_strategy"] == "least_loaded"
    assert summary["assignments"] == [0, 1]
    assert summary["single_replica_time_ms"] == pytest.approx(3.93, abs=0.005)
    assert summary["makespan_ms"] == pytest.approx(2.62, abs=0.005)
    assert summary["throughput_req_per_ms"] == 0.7634
    assert summary["imbalance_ratio"] == 0.6667
    assert summary["comm_cost_ms"] == pytest.approx(0.09, abs=0.005)


def test_a_split_burst_adds_up_its_hand_offs():
    summary = simulate_distributed_inference(REQUESTS, 2, SPLIT)
    assert summary["serving_mode"] == "pd_disaggregated"
    assert summary["handoff_total_bytes"] == 3072
    assert summary["handoff_total_ms"] > 0


@pytest.mark.parametrize(
    ("makespan_ms", "imbalance", "comm_ms", "decision", "next_action"),
    [
        (2.62, 0.6667, 0.09, "accept", "promote_to_real_cluster_check"),
        (3.10, 0.9, 0.09, "tune", "refine_routing_or_parallel_degree"),
        (4.30, 1.2, 0.40, "reject", "fallback_to_single_replica_audit"),
    ],
)
def test_the_three_decisions(makespan_ms, imbalance, comm_ms, decision, next_action):
    candidate = {
        "single_replica_time_ms": 3.93,
        "makespan_ms": makespan_ms,
        "imbalance_ratio": imbalance,
        "comm_cost_ms": comm_ms,
    }
    result = recommend_distributed_inference_run(
        {"single_replica_time_ms": 3.93}, candidate, max_imbalance_ratio=0.8, max_comm_ratio=0.05
    )
    assert (result["decision"], result["next_action"]) == (decision, next_action)
    assert f"{makespan_ms:g}" in result["reason"]


# What it leaves open, and what is added.


def test_the_proxies_split_the_total_at_the_first_token():
    cost = estimate_request_cost(REQUESTS[0], {**SPLIT, "pp_stages": 3})
    # prefill 1.28, its communication 0.03, pipeline 0.5, hand-off 2.2; decode 1.28 and 0.03.
    assert cost["ttft_proxy_ms"] == pytest.approx(4.01, abs=1e-9)
    assert cost["tpot_proxy_ms"] == round(1.31 / 64, 4)
    assert cost["pipeline_ms"] == 0.5


def test_without_generated_tokens_there_is_no_time_per_token():
    cost = estimate_request_cost({"prompt_tokens": 8, "generate_tokens": 0}, CONFIG)
    assert cost["tpot_proxy_ms"] is None


def test_no_requests_take_no_time():
    summary = simulate_distributed_inference([], 3, CONFIG)
    assert summary["assignments"] == []
    assert summary["makespan_ms"] == summary["throughput_req_per_ms"] == 0.0
    assert summary["imbalance_ratio"] == 0.0


def test_a_burst_keeps_its_input_order():
    requests = [{"prompt_tokens": n, "generate_tokens": 0} for n in (300, 100, 200, 50)]
    summary = simulate_distributed_inference(requests, 2, {**CONFIG, "tp_degree": 1})
    # Loads: 3 | 1, then 2 on the second, then 0.5 on the first of two equal loads.
    assert summary["assignments"] == [0, 1, 1, 0]
    assert summary["replica_load_ms"] == [3.5, 3.0]


request_lists = st.lists(
    st.fixed_dictionaries(
        {"prompt_tokens": st.integers(0, 4000), "generate_tokens": st.integers(0, 900)}
    ),
    max_size=25,
)


@settings(max_examples=100, deadline=None)
@given(request_lists, st.integers(1, 6), st.sampled_from((CONFIG, SPLIT)))
def test_least_loaded_is_the_queue_aware_policy_on_a_burst_at_once(requests, replicas, config):
    costs = [estimate_request_cost(request, config)["total_ms"] for request in requests]
    burst = workload_of_columns([0.0] * len(costs), service_ms=costs)
    routed = simulate(burst, POLICIES["queue_aware"], FifoFleet(replicas))
    loads = [0.0] * replicas
    plain = []
    for cost in costs:
        plain.append(min(range(replicas), key=loads.__getitem__))
        loads[plain[-1]] += cost
    summary = simulate_distributed_inference(requests, replicas, config)
    assert summary["assignments"] == routed.replica.tolist() == plain
    assert summary["makespan_ms"] == round(max(loads), 4)


def test_the_columnar_estimate_is_the_lessons_summary_before_rounding():
    workload = workload_of_columns([0.0, 0.0], prompt_tokens=[128, 64], output_tokens=[64, 32])
    ours = estimate(workload, POLICIES["queue_aware"], FifoFleet(2, costs=StageCosts(**SPLIT)))
    lesson = simulate_distributed_inference(REQUESTS, 2, SPLIT)
    for key in (
        "single_replica_time_ms",
        "makespan_ms",
        "imbalance_ratio",
        "comm_cost_ms",
        "handoff_total_ms",
        "handoff_total_bytes",
        "queue_wait_total_ms",
    ):
        assert getattr(ours.summary, key) == pytest.approx(lesson[key], abs=2e-4)


# Bad input.


@pytest.mark.parametrize("key", sorted(CONFIG))
def test_a_config_without_a_needed_key_is_refused(key):
    config = {name: value for name, value in CONFIG.items() if name != key}
    with pytest.raises(InputError, match=rf"config: {key} is missing"):
        estimate_request_cost(REQUESTS[0], config)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({**CONFIG, "tp_degree": -1}, r"config: tp_degree is -1"),
        ({**CONFIG, "comm_ms_per_token": math.nan}, r"config: comm_ms_per_token is nan"),
        ({**CONFIG, "prefill_ms_per_token": "0.1"}, r"config: prefill_ms_per_token is '0.1'"),
        ({**SPLIT, "handoff_bytes_per_ms": 0}, r"config: handoff_bytes_per_ms is 0"),
        ({**SPLIT, "kv_bytes_per_token": -4}, r"config: kv_bytes_per_token is -4"),
        ([], r"config: "),
    ],
)
def test_a_bad_config_is_refused(config, message):
    with pytest.raises(InputError, match=message):
        simulate_distributed_inference(REQUESTS, 2, config)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"prompt_tokens": 3}, r"requests\[1\]: generate_tokens is missing"),
        ({"prompt_tokens": -3, "generate_tokens": 1}, r"requests\[1\]: prompt_tokens is -3"),
        ({"prompt_tokens": 3, "generate_tokens": math.inf}, r"generate_tokens is inf"),
        ("r", r"requests\[1\]"),
    ],
)
def test_a_bad_request_is_refused_with_its_position(request_, message):
    with pytest.raises(InputError, match=message):
        simulate_distributed_inference([REQUESTS[0], request_], 2, CONFIG)


def test_no_replicas_are_refused():
    with pytest.raises(InputError, match="num_replicas is 0"):
        simulate_distributed_inference(REQUESTS, 0, CONFIG)


@pytest.mark.parametrize("limit", [-0.1, math.nan, "1", None])
def test_a_bad_limit_is_refused(limit):
    with pytest.raises(InputError, match="max_comm_ratio is"):
        recommend_distributed_inference_run({}, {}, 0.8, limit)
