"""The figures that the verdict reads, on runs small enough to work out."""

from __future__ import annotations

import pytest

from pointsman import POLICIES, workload_of_columns
from pointsman.costs.iteration import IterationCosts
from pointsman.plan.hardware import Deployment
from pointsman.plan.measure import measured
from pointsman.plan.shapes import Shape
from pointsman.plan.simulations import slowed
from pointsman.sim.batching import BatchingFleet, Engine, Split, simulate_fleet
from tests.plan import made

TALK = IterationCosts(0.5, 0.01, 0.25, 0.0)
ENGINE = Engine(IterationCosts(8.0, 1.0, 2.0, 0.0), kv_blocks=50)


def run(shape: Shape, prompts: list[int], outputs: list[int], split: Split | None = None):
    arrivals = [0.0] * len(prompts)
    workload = workload_of_columns(arrivals, prompt_tokens=prompts, output_tokens=outputs)
    deployment = Deployment(shape, BatchingFleet((ENGINE,) * shape.replicas, split), TALK)
    outcome = simulate_fleet(workload, POLICIES["round_robin"], deployment.fleet)
    return measured(outcome, deployment, made.TTFT_30)


def test_communication_is_counted_for_each_iteration_prompt_token_and_decode():
    """One prompt of 10 and two further tokens: three iterations, 3 * 0.5 + 10 * 0.01 + 2 * 0.25."""
    metrics, _ = run(Shape(1), [10], [3])
    assert metrics.comm_cost_ms == pytest.approx(2.1)
    assert metrics.serving.makespan_ms == pytest.approx(18.0 + 10.0 + 10.0)
    assert metrics.peak_batch == 1
    assert metrics.peak_kv_tokens == 16


def test_imbalance_is_of_busy_times():
    """Busy for 18 and 28 ms: a difference of 10 over a mean of 23."""
    metrics, columns = run(Shape(2), [10, 20], [1, 1])
    assert metrics.imbalance_ratio == pytest.approx(10.0 / 23.0)
    assert columns.kept.tolist() == [1.0, 1.0]
    assert columns.log_e2e.tolist() == pytest.approx([2.8903717579, 3.3322045102])  # of 18 and 28


def test_of_a_split_fleet_each_pool_is_held_against_itself():
    """Both prompts on the only prefill replica, a decode each: even, whatever prefill costs."""
    split = Split(prefill=1, kv_bytes_per_token=100.0, bytes_per_ms=500.0, base_ms=1.0)
    metrics, _ = run(Shape(3, prefill=1), [10, 10], [2, 2], split)
    assert metrics.imbalance_ratio == 0.0
    assert metrics.handoff_total_bytes == 2 * 10 * 100.0
    assert metrics.handoff_total_ms >= 2 * (1.0 + 2.0)  # base and 1,000 bytes each, at least


def test_slower_services_slow_communication_as_well():
    deployment = Deployment(Shape(1), BatchingFleet.of(ENGINE, 1), TALK)
    twice = slowed(deployment, 2.0)
    assert twice.fleet.engines[0].costs == IterationCosts(16.0, 2.0, 4.0, 0.0)
    assert twice.communication == IterationCosts(1.0, 0.02, 0.5, 0.0)
