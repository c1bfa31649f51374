"""What holds for every policy of the catalogue: on any view, and on a small fleet."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman import POLICIES, FifoFleet, InputError, simulate, workload_of_columns
from pointsman.costs.iteration import IterationCosts
from pointsman.policies.catalogue import EVERYWHERE
from pointsman.policies.in_flight import FLIGHT, idle_in_flight
from pointsman.policies.policy import (
    CACHED_TOKENS,
    CANDIDATE,
    IN_FLIGHT,
    KV_USE,
    REQUEST,
    ROWS,
    SIGNAL_OF_ROW,
)
from pointsman.sim.batching import BatchingFleet, Engine, simulate_fleet
from pointsman.workload.arrivals import GammaArrivals
from pointsman.workload.distributions import distribution_of_text
from pointsman.workload.generate import Conversations, Traffic, generate

COSTS = IterationCosts(
    per_iteration_ms=8.0, per_prefill_token_ms=0.05, per_decode_ms=0.5, per_kv_token_ms=1e-4
)
ENGINE = Engine(COSTS, kv_blocks=400, block_size=16, max_num_batched_tokens=512)

counts = st.integers(0, 500)
BOUNDS = {KV_USE: st.floats(0, 1), CANDIDATE: st.integers(0, 4095)}


@st.composite
def views(draw):
    """Whole numbers mostly, as counts and tokens are, so that candidates are often equal."""
    size = draw(st.integers(1, 9))
    view = np.zeros((ROWS, size))
    for row in range(ROWS):
        cells = BOUNDS.get(row, st.sampled_from((0, 1, 16, 64, 4096)) | counts)
        view[row] = draw(st.lists(cells, min_size=size, max_size=size))
    return view


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(sorted(POLICIES)),
    views(),
    st.sampled_from((-1, 0, 1, 15, 16, 1000, 100_000)),
    st.floats(0, 1, exclude_max=True),
    st.integers(0, 2**62),
)
def test_every_policy_picks_an_eligible_candidate_and_writes_nothing(
    name, view, prompt_tokens, draw, key
):
    rule = POLICIES[name]
    hidden = [row for row, signal in enumerate(SIGNAL_OF_ROW) if signal not in rule.reads]
    view[hidden] = np.nan
    request = np.zeros(1, dtype=REQUEST)
    request["prompt_tokens"], request["home"] = prompt_tokens, -1
    request["random"], request["key"] = draw, key
    request["longest_hit_tokens"] = np.nan_to_num(view[CACHED_TOKENS]).max()
    before = view.copy()
    arguments = [request[0], view, rule.parameter_values]
    if IN_FLIGHT in rule.reads:
        running = np.zeros((view.shape[1], 1), dtype=np.int32)
        in_flight = idle_in_flight(np.zeros(1, dtype=FLIGHT), running)
        in_flight.replica_of[:, 0] = np.arange(view.shape[1])
        arguments.append(in_flight)
    candidate, reason = rule.choose(*arguments)
    assert 0 <= candidate < view.shape[1]
    assert 0 <= reason < len(rule.reasons)
    assert np.array_equal(view, before, equal_nan=True)


def spec(text):
    return distribution_of_text(text, "test")


def conversations():
    traffic = Traffic(
        requests=200,
        arrivals=GammaArrivals(8.0, 1.0),
        prompt_tokens=spec("lognormal:mean=300,sigma=0.7"),
        output_tokens=spec("geometric:mean=20"),
        conversations=Conversations(spec("geometric:mean=4"), spec("exponential:mean=2000")),
    )
    return generate(traffic, seed=3)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_finishes_every_request_on_a_small_fleet(name):
    workload, rule = conversations(), POLICIES[name]
    run = simulate_fleet(workload, rule, BatchingFleet.of(ENGINE, 3), seed=5)
    assert run.finished.all()
    assert set(run.replica.tolist()) <= {0, 1, 2}
    again = simulate_fleet(workload, rule, BatchingFleet.of(ENGINE, 3), seed=5)
    assert again.progress.tobytes() == run.progress.tobytes()


@pytest.mark.parametrize("name", ["fewest_misses", "earliest_first_token", "least_requests"])
def test_requests_spread_where_prompts_cost_nothing(name):
    """Each one decodes long after the next one has come, 20 ms later."""
    workload = workload_of_columns(
        np.arange(3) * 20.0, prompt_tokens=np.full(3, 40), output_tokens=np.full(3, 50)
    )
    free = IterationCosts(8.0, 0.0, 0.5, 0.0)
    run = simulate_fleet(workload, POLICIES[name], BatchingFleet.of(Engine(free, kv_blocks=400), 3))
    assert sorted(run.replica.tolist()) == [0, 1, 2]


@pytest.mark.parametrize("name", ["session_affinity", "sglang_prefix_hash"])
def test_a_session_stays_where_it_belongs_while_nothing_is_overloaded(name):
    """One request at a time: no bound is ever met."""
    workload = workload_of_columns(
        np.arange(60) * 1e4,
        prompt_tokens=np.full(60, 40),
        output_tokens=np.full(60, 2),
        session=np.arange(60) % 12,
    )
    run = simulate_fleet(workload, POLICIES[name], BatchingFleet.of(ENGINE, 4))
    for session in range(12):
        assert len(set(run.replica[session::12].tolist())) == 1
    assert len(set(run.replica.tolist())) > 1


@pytest.mark.parametrize("name", sorted(set(POLICIES) - set(EVERYWHERE)))
def test_a_policy_that_needs_a_batching_fleet_is_refused_on_replicas_that_serve_one_at_a_time(name):
    workload = workload_of_columns([0.0], prompt_tokens=[10], output_tokens=[2])
    with pytest.raises(InputError, match=f"policy {name} reads .*expected a fleet that batches"):
        simulate(workload, POLICIES[name], FifoFleet(2))
