from __future__ import annotations

import numpy as np
import pytest

from pointsman.core.errors import InputError
from pointsman.workload.formats import read_workload
from pointsman.workload.reading import ReadOptions
from pointsman.workload.steps import arrival_step_ms, spread_arrivals
from pointsman.workload.workload import workload_of_columns

# Five steps of 3 s, slightly off the grid, one of them empty; two requests in each of the others.
STEPPED = np.repeat([0.0, 3001.0, 5999.0, 12_000.0], 2)


def test_steps_are_found_though_instants_are_off_the_grid():
    assert arrival_step_ms(STEPPED) == 3001.0


def test_arrivals_that_share_no_instants_have_no_step():
    assert arrival_step_ms(np.arange(10.0) * 3000) is None


def test_ties_at_unequal_distances_have_no_step():
    assert arrival_step_ms(np.repeat([0.0, 1000.0, 2370.0, 2900.0, 4444.0], 2)) is None


def test_spread_arrivals_stay_inside_their_step_and_in_order():
    workload = workload_of_columns(STEPPED, service_ms=np.arange(8.0))
    spread = spread_arrivals(workload, seed=1)
    ends = np.repeat([3001.0, 5999.0, 9000.0, 15_001.0], 2)
    assert np.all(spread.arrival_ms >= STEPPED)
    assert np.all(spread.arrival_ms <= ends)
    assert np.all(np.diff(spread.arrival_ms) > 0)
    assert spread.service_ms.tolist() == list(range(8))


def test_the_spread_is_a_function_of_the_seed():
    workload = workload_of_columns(STEPPED, service_ms=np.ones(8))
    one, same, other = (spread_arrivals(workload, seed).arrival_ms for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_a_trace_without_steps_is_not_spread():
    workload = workload_of_columns([0.0, 1.0, 5.0], service_ms=[1, 1, 1])
    with pytest.raises(InputError, match="memory: the arrivals show no step"):
        spread_arrivals(workload, 0)


@pytest.mark.traces
def test_the_public_conversation_trace_spreads_to_gaps_like_poissons(shared):
    path = shared("traces/mooncake_conversation.jsonl")
    assert arrival_step_ms(read_workload(path).arrival_ms) == 3000.0
    gaps = np.diff(read_workload(path, ReadOptions(spread_seed=0)).arrival_ms)
    assert 0.95 < gaps.std() / gaps.mean() < 1.15
