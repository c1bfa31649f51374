"""The lesson's proxies as costs of a batching engine."""

from __future__ import annotations

import msgspec
import pytest

from pointsman.costs.iteration import IterationCosts
from pointsman.costs.proxies import ProxyCosts
from pointsman.costs.stages import StageCosts
from pointsman.policies.catalogue import POLICIES
from pointsman.sim.batching import BatchingFleet, Engine, simulate_fleet
from pointsman.workload.workload import workload_of_columns

LESSON = StageCosts(
    prefill_ms_per_token=0.01,
    decode_ms_per_token=0.02,
    comm_ms_per_token=0.03,
    pipeline_penalty_ms=0.25,
    tp_degree=2,
    pp_stages=3,
)


def test_each_constant_goes_where_the_mapping_says():
    costs = ProxyCosts(LESSON).iteration_costs()
    assert msgspec.structs.astuple(costs) == pytest.approx(
        (0.5, 0.01 + 0.03 / 128, 0.02 + 0.03 / 64, 0.0, 0.0)
    )


def test_without_a_pipeline_an_iteration_takes_a_microsecond():
    assert ProxyCosts(StageCosts()).iteration_costs() == IterationCosts(0.001, 0.05, 0.05, 0.0, 0.0)


def test_a_request_alone_takes_the_lessons_time_less_one_decode_step():
    workload = workload_of_columns([0.0], prompt_tokens=[128], output_tokens=[64])
    fleet = BatchingFleet.of(Engine(ProxyCosts(LESSON).iteration_costs(), kv_blocks=100), 1)
    run = simulate_fleet(workload, POLICIES["round_robin"], fleet)
    prefill_ms, decode_ms = 128 * 0.01 + 0.03, 64 * 0.02 + 0.03
    pipeline_ms = 64 * 0.5  # each iteration passes it
    assert run.finish_ms[0] == pytest.approx(prefill_ms + decode_ms * 63 / 64 + pipeline_ms)
