"""A cell's run: how long it lasts, in one process and in several."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pointsman import InputError, workload_of_columns
from pointsman.comparison.bench_fleets import fleet_named
from pointsman.comparison.bench_traffic import RecordedTrace
from pointsman.comparison.held_load import Target
from pointsman.comparison.load_bench import Asked, asked_for, bench, bench_cell, policies_of
from pointsman.metrics.goodput import Objectives

OBJECTIVES = Objectives(ttft_ms=3000.0, tpot_ms=60.0)
COARSE = Target(OBJECTIVES, tolerance_ratio=1.2)


def asked(*policies, **given):
    return Asked(policies=policies, target=COARSE, least_minutes=1.0, **given)


def long_prompts(requests=400):
    """2,000 tokens every 200 ms, each in 1,000 blocks of its own: 1.6 MB of blocks."""
    return workload_of_columns(
        np.arange(requests) * 200.0,
        prompt_tokens=np.full(requests, 2000),
        output_tokens=np.full(requests, 5),
        chain_start=np.arange(requests + 1) * 1000,
        chain_blocks=np.arange(requests * 1000),
        block_size_tokens=2,
    )


def test_large_traces_reach_other_processes_as_they_are():
    traces = [RecordedTrace("long", long_prompts())]
    fleets = [fleet_named("1"), fleet_named("2")]
    here = list(bench(traces, fleets, asked("round_robin")))
    there = list(bench(traces, fleets, asked("round_robin"), jobs=2))
    assert here == there
    assert here[0].held["round_robin"].load_ratio < here[1].held["round_robin"].load_ratio


def test_a_trace_that_lasts_is_played_once():
    cell = bench_cell(RecordedTrace("long", long_prompts()), fleet_named("1"), asked("lmetric"))
    assert cell.rounds == 2  # 80 s at some 1.5 times its rate would last less than a minute
    again = bench_cell(
        RecordedTrace("long", long_prompts(1000)), fleet_named("1"), asked("lmetric")
    )
    assert again.rounds == 1
    assert cell.rate_rps == pytest.approx(400 / 79.8)


@pytest.mark.parametrize("slowness", [1e-4, 1e4])
def test_a_trace_may_come_at_any_rate(slowness):
    """What is held is told in multiples of it: the same requests a second."""
    plain, slow = long_prompts(), long_prompts()
    slow = replace(slow, arrival_ms=slow.arrival_ms * slowness)
    rates = [
        cell.held["lmetric"].load_ratio * cell.rate_rps
        for workload in (plain, slow)
        for cell in [bench_cell(RecordedTrace("t", workload), fleet_named("1"), asked("lmetric"))]
    ]
    assert rates[0] == pytest.approx(rates[1], rel=0.2)


def test_quick_is_coarser_and_shorter_than_in_full():
    full, quick = (asked_for(["lmetric"], OBJECTIVES, None, quick) for quick in (False, True))
    assert full.target.tolerance_ratio < quick.target.tolerance_ratio
    assert full.minutes > quick.minutes
    assert full.least_minutes >= 10.0


def test_policies_are_told_the_objectives_unless_the_text_says_otherwise():
    told = policies_of(asked("fewest_misses", "fewest_misses:tpot_ms=30"))
    assert [each.parameters["tpot_ms"] for each in told.values()] == [60.0, 30.0]


def test_no_policy_and_one_twice_are_refused():
    with pytest.raises(InputError, match="no policy"):
        asked()
    with pytest.raises(InputError, match="policy is 'lmetric'; expected each policy once"):
        asked("lmetric", "lmetric")
