"""Engine cores that step together, by hand and against stepping through every iteration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.calibrate.lockstep import run_in_lockstep
from pointsman.costs.iteration import IterationCosts
from pointsman.policies.catalogue import POLICIES
from pointsman.sim.batching import BatchingFleet, Engine, fleet_state, simulate_fleet
from pointsman.sim.knowledge import Signals
from pointsman.workload.workload import workload_of_columns

TOKENS_ONLY = IterationCosts(10.0, 1.0, 0.0, 0.0)


def engine(costs=TOKENS_ONLY, **changed) -> Engine:
    return Engine(costs=costs, kv_blocks=10_000, **changed)


def workload(requests):
    """Requests as (arrival, prompt, output)."""
    arrival, prompt, output = np.array(requests, dtype=np.float64).T
    columns = {"prompt_tokens": prompt.astype(np.int32), "output_tokens": output.astype(np.int32)}
    return workload_of_columns(arrival, **columns)


def lockstep(requests, cores, replica=None):
    fleet = BatchingFleet.of(replica or engine(), cores)
    state = fleet_state(workload(requests), fleet, Signals())
    core_of = run_in_lockstep(state).tolist()
    times = {name: state.progress[name] for name in ("scheduled_ms", "finish_ms")}
    return core_of, {**times, "first_token_ms": state.flights["first_token_ms"]}


def test_an_iteration_lasts_as_long_as_that_of_the_slowest_core():
    # 0..15: the prompt of 5 alone. 15..45: its last token beside the prompt of 20. 45..55.
    core_of, progress = lockstep([(0, 5, 2), (1, 20, 2)], 2)
    assert core_of == [0, 1]
    assert progress["first_token_ms"].tolist() == [15, 45]
    assert progress["finish_ms"].tolist() == [45, 55]


def test_with_asynchronous_scheduling_a_busy_core_sees_an_arrival_one_iteration_later():
    # Both on the only core: 0..15 the prompt, 15..25 a token, and the second one's from 25 on.
    late = engine(async_scheduling=True)
    _, progress = lockstep([(0, 5, 9), (1, 20, 2)], 1, late)
    assert progress["scheduled_ms"].tolist() == [0, 25]
    assert progress["first_token_ms"].tolist() == [15, 55]


def test_until_a_report_comes_what_was_sent_counts():
    core_of, _ = lockstep([(at, 5, 500) for at in range(4)], 2)
    assert core_of == [0, 1, 0, 1]


def test_a_request_sent_since_the_report_weighs_four_that_run():
    # 0, 2 and 4 run on core 0 and 1 on core 1, for 3 ended long ago. Reported: 3 and 1. Then
    # 4 * 0 + 1 against 3; 4 * 1 + 1 against 3.
    early = [(0, 5, 500), (1, 5, 500), (2, 5, 500), (3, 5, 1), (4, 5, 500)]
    core_of, _ = lockstep([*early, (951, 5, 1), (952, 5, 1)], 2)
    assert core_of == [0, 1, 0, 1, 0, 1, 0]


def test_a_request_that_waits_weighs_four_that_run():
    # Two seats a core: of 5, core 0 runs two and one waits, core 1 runs two. Reported: 6 and 2.
    # 2 against 6, then 6 against 6.
    core_of, _ = lockstep(
        [*((at, 5, 500) for at in range(5)), (951, 5, 1), (952, 5, 1)], 2, engine(max_num_seqs=2)
    )
    assert core_of[5:] == [1, 0]


def stepped(requests, core_of, cores, costs):
    """Iteration by iteration: first tokens and finishes, of unlimited synchronous cores."""
    fixed, per_prefill, per_decode, per_kv, per_attention = costs
    first, finish, generated = {}, {}, dict.fromkeys(range(len(requests)), 0)
    now = requests[0][0]
    while len(finish) < len(requests):
        inside = [i for i, r in enumerate(requests) if r[0] < now and i not in finish]
        # What comes to an idle engine starts it by itself, before others of the same instant.
        inside = inside or [min(i for i in generated if i not in finish)]
        now = max(now, requests[inside[0]][0])
        spent = [0.0] * cores
        for i in inside:
            prompt, done = requests[i][1], generated[i]
            spent[core_of[i]] += (
                per_decode + per_kv * (prompt + done)
                if done
                else per_prefill * prompt + per_attention * prompt * prompt / 2
            )
        now += fixed + max(spent)
        for i in inside:
            generated[i] += 1
            first.setdefault(i, now)
            if generated[i] == requests[i][2]:
                finish[i] = now
    return [[times[i] for i in range(len(requests))] for times in (first, finish)]


COSTS = st.tuples(st.sampled_from([7.0, 11.3]), *[st.sampled_from([0.0, 0.013, 0.21])] * 4)
# No arrival falls on the end of an iteration, where rounding would decide.
REQUESTS = st.lists(
    st.tuples(
        st.integers(0, 400).map(lambda at: at * 3.7 + 0.001 * at**0.5),
        st.integers(1, 60),
        st.integers(1, 40),
    ),
    min_size=1,
    max_size=12,
).map(sorted)


@settings(max_examples=150, deadline=None)
@given(requests=REQUESTS, costs=COSTS, cores=st.integers(1, 3))
def test_jumps_give_the_times_of_stepping(requests, costs, cores):
    core_of, progress = lockstep(requests, cores, engine(IterationCosts(*costs)))
    first, finish = stepped(requests, core_of, cores, costs)
    assert progress["first_token_ms"] == pytest.approx(np.array(first), rel=1e-9)
    assert progress["finish_ms"] == pytest.approx(np.array(finish), rel=1e-9)


@settings(max_examples=100, deadline=None)
@given(requests=REQUESTS, late=st.booleans(), seats=st.integers(1, 4), blocks=st.integers(7, 12))
def test_a_core_alone_is_a_replica(requests, late, seats, blocks):
    costs = IterationCosts(7.0, 0.21, 0.13, 0.013, 0.001)
    alone = Engine(costs, blocks, max_num_seqs=seats, async_scheduling=late)
    _, progress = lockstep(requests, 1, alone)
    fleet = BatchingFleet.of(alone, 1)
    expected = simulate_fleet(workload(requests), POLICIES["round_robin"], fleet)
    assert progress["scheduled_ms"] == pytest.approx(expected.progress["scheduled_ms"], rel=1e-9)
    assert progress["first_token_ms"] == pytest.approx(expected.first_token_ms, rel=1e-9)
    assert progress["finish_ms"] == pytest.approx(expected.finish_ms, rel=1e-9)
