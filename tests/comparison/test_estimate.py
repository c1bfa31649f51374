"""One workload on one configuration: the ledger, the burst, the service."""

from __future__ import annotations

import pytest

from pointsman import POLICIES, FifoFleet, StageCosts, read_workload, workload_of_columns
from pointsman.comparison.estimate import estimate
from pointsman.policies.catalogue import EVERYWHERE
from pointsman.verdict.decide import Candidate, Limits, decide
from tests.conftest import ROOT

EXAMPLES = ("conversation.jsonl.gz", "poisson.jsonl", "lesson_routing.jsonl")


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("policy", sorted(EVERYWHERE))
def test_one_replica_is_no_improvement_over_itself(name, policy):
    workload = read_workload(ROOT / "examples" / name)
    alone = estimate(workload, POLICIES[policy], FifoFleet(1)).summary
    assert alone.makespan_ms == alone.single_replica_time_ms
    candidate = Candidate(alone.makespan_ms, alone.imbalance_ratio, alone.comm_cost_ms)
    assert decide(alone.single_replica_time_ms, candidate, Limits(1e9, 1e9)).decision == "reject"


def test_the_ledger_adds_up_every_stage_with_nothing_cached():
    workload = workload_of_columns(
        [0.0, 1.0, 2.0],
        service_ms=[float("nan"), float("nan"), 7.0],
        prompt_tokens=[128, 64, -1],
        output_tokens=[64, 32, -1],
    )
    costs = StageCosts(
        prefill_ms_per_token=0.5,
        decode_ms_per_token=0.25,
        comm_ms_per_token=0.5,
        pipeline_penalty_ms=3.0,
        tp_degree=2,
        pp_stages=2,
    )
    ledger = estimate(workload, POLICIES["queue_aware"], FifoFleet(2, costs=costs)).ledger
    assert (ledger.prefill_ms, ledger.decode_ms) == (96.0, 24.0)
    assert ledger.comm_ms == 0.5 * (1 + 1 + 0.5 + 0.5)
    assert (ledger.pipeline_ms, ledger.service_ms) == (6.0, 7.0)


def test_a_cache_counts_on_both_sides_of_the_comparison():
    """Four requests with one prompt of 100 tokens: one replica computes it once."""
    workload = workload_of_columns(
        [0.0] * 4,
        prompt_tokens=[100] * 4,
        output_tokens=[0] * 4,
        chain_start=[0, 1, 2, 3, 4],
        chain_blocks=[0, 0, 0, 0],
        block_size_tokens=100,
    )
    costs = StageCosts(prefill_ms_per_token=1.0, decode_ms_per_token=1.0)
    two = estimate(workload, POLICIES["round_robin"], FifoFleet(2, costs=costs)).summary
    assert two.single_replica_time_ms == 100.0
    assert two.makespan_ms == 100.0
