"""Every recorded vector of both lessons, floats equal and not close."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from pointsman import (
    compare_replica_strategies,
    estimate_request_cost,
    recommend_distributed_inference_run,
    simulate_distributed_inference,
    simulate_replica_routing,
    summarize_replica_service,
)
from tests.conftest import SHARED

HERE = Path(__file__).resolve().parents[1] / "data" / "conformance"


def recorded(name: str) -> list[dict]:
    """The vectors of this checkout, and those beside it where they are others."""
    folders = (HERE, SHARED / "conformance")
    texts = {(folder / name).read_text() for folder in folders if (folder / name).is_file()}
    return [case for text in texts for case in json.loads(text)]


@pytest.fixture(scope="module")
def routing_cases():
    return recorded("replica_routing.json")


@pytest.fixture(scope="module")
def inference_cases():
    return recorded("distributed_inference.json")


def test_every_routing_vector_is_reproduced_exactly(routing_cases):
    assert len(routing_cases) >= 20
    for case in routing_cases:
        requests = copy.deepcopy(case["requests"])
        for strategy, expected in case["expected"].items():
            records = simulate_replica_routing(
                requests,
                case["num_replicas"],
                strategy,
                locality_slack_ms=case["locality_slack_ms"],
                cache_hit_speedup=case["cache_hit_speedup"],
            )
            rows = [[record[key] for key in case["record_columns"]] for record in records]
            assert rows == expected["records"]
            summary = summarize_replica_service(records, case["num_replicas"])
            assert {key: summary[key] for key in expected["metrics"]} == expected["metrics"]
        assert requests == case["requests"]


def test_every_routing_vector_compares_in_the_recorded_order(routing_cases):
    for case in routing_cases:
        compared = compare_replica_strategies(
            case["requests"], case["num_replicas"], case["locality_slack_ms"]
        )
        assert [item["strategy"] for item in compared] == case["comparison_order"]


def test_every_inference_vector_is_reproduced_exactly(inference_cases):
    assert len(inference_cases) >= 20
    for case in inference_cases:
        for request, expected in zip(case["requests"], case["costs"], strict=True):
            cost = estimate_request_cost(request, case["config"])
            assert {key: cost[key] for key in expected} == expected
        summary = simulate_distributed_inference(
            case["requests"], case["num_replicas"], case["config"]
        )
        assert {key: summary[key] for key in case["summary"]} == case["summary"]


def test_every_recorded_decision_is_taken(inference_cases):
    for case in inference_cases:
        decision = recommend_distributed_inference_run(
            case["baseline"],
            case["summary"],
            max_imbalance_ratio=case["max_imbalance_ratio"],
            max_comm_ratio=case["max_comm_ratio"],
        )
        assert {key: decision[key] for key in case["decision"]} == case["decision"]
