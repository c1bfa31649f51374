"""A workload on a fleet that batches, as Python users call it."""

from __future__ import annotations

import numpy as np
import pytest

from pointsman import POLICIES, InputError, workload_of_columns
from pointsman.costs.iteration import IterationCosts
from pointsman.sim.batching import BatchingFleet, Engine, simulate_fleet
from pointsman.sim.outcome import gaps_of
from pointsman.sim.timeline import even_samples

COSTS = IterationCosts(
    per_iteration_ms=8.0, per_prefill_token_ms=0.5, per_decode_ms=1.0, per_kv_token_ms=0.0
)
ENGINE = Engine(COSTS, kv_blocks=100, block_size=16, max_num_batched_tokens=64)


def two_equal_prompts(second_ms: float):
    return workload_of_columns(
        [0.0, second_ms],
        prompt_tokens=[48, 48],
        output_tokens=[1, 1],
        chain_start=[0, 3, 6],
        chain_blocks=[0, 1, 2, 0, 1, 2],
        block_size_tokens=16,
    )


def test_a_prompt_is_a_hit_once_it_is_computed_and_not_when_it_is_routed():
    """The first one is computed from 0 to 8 + 24 = 32 ms; the last token is never a hit."""
    fleet = BatchingFleet.of(ENGINE, 1)
    rule = POLICIES["round_robin"]
    while_it_runs = simulate_fleet(two_equal_prompts(1.0), rule, fleet)
    assert while_it_runs.cached_tokens.tolist() == [0, 32]
    together = simulate_fleet(two_equal_prompts(0.0), rule, fleet)
    assert together.cached_tokens.tolist() == [0, 32]
    assert together.queue_wait_ms.tolist() == [0.0, 32.0]


def test_replicas_of_different_kinds_stand_side_by_side():
    fast = Engine(IterationCosts(1.0, 0.1, 0.1, 0.0), kv_blocks=50)
    workload = workload_of_columns([0.0, 0.0], prompt_tokens=[10, 10], output_tokens=[3, 3])
    fleet = BatchingFleet((ENGINE, fast))
    run = simulate_fleet(workload, POLICIES["round_robin"], fleet)
    assert run.replica.tolist() == [0, 1]
    # 8 + 5 and twice 9; 1 + 1 and twice 1.1
    assert run.finish_ms.tolist() == pytest.approx([31.0, 4.2])


def test_the_same_seed_gives_the_same_bytes():
    rng = np.random.default_rng(2)
    workload = workload_of_columns(
        np.cumsum(rng.exponential(30.0, 300)),
        prompt_tokens=rng.integers(1, 400, 300),
        output_tokens=rng.integers(1, 60, 300),
    )
    fleet = BatchingFleet.of(ENGINE, 3)
    for rule in POLICIES.values():
        first, second = (simulate_fleet(workload, rule, fleet, seed=4) for _ in range(2))
        assert first.progress.tobytes() == second.progress.tobytes()
        assert first.finished.all()


def test_what_can_never_fit_is_rejected_and_the_rest_is_served():
    workload = workload_of_columns([0.0, 0.0], prompt_tokens=[1600, 20], output_tokens=[2, 2])
    run = simulate_fleet(workload, POLICIES["round_robin"], BatchingFleet.of(ENGINE, 1))
    assert run.finished.tolist() == [False, True]
    assert np.isnan(run.first_token_ms[0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kv_blocks": 0}, "kv_blocks is 0"),
        ({"block_size": -16}, "block_size is -16"),
        ({"max_num_seqs": 2.5}, "max_num_seqs is 2.5"),
        ({"costs": IterationCosts(0.0, 1.0, 1.0, 0.0)}, "per_iteration_ms is 0.0"),
        ({"costs": IterationCosts(1.0, -1.0, 1.0, 0.0)}, "per_prefill_token_ms is -1.0"),
        ({"costs": IterationCosts(1.0, float("nan"), 1.0, 0.0)}, "per_prefill_token_ms is nan"),
    ],
)
def test_an_impossible_engine_is_refused(changes, message):
    given = {"costs": COSTS, "kv_blocks": 10, **changes}
    with pytest.raises(InputError, match=message):
        Engine(**given)


def test_fleets_and_rows_that_cannot_be_simulated_are_refused():
    other = Engine(COSTS, kv_blocks=10, block_size=32)
    with pytest.raises(InputError, match=r"block_size is \[16, 32\]"):
        BatchingFleet((ENGINE, other))
    with pytest.raises(InputError, match="replicas is 0"):
        BatchingFleet(())
    timed = workload_of_columns([0.0], service_ms=[5.0])
    with pytest.raises(InputError, match="workload row 0: prompt_tokens is missing"):
        simulate_fleet(timed, POLICIES["random"], BatchingFleet.of(ENGINE, 1))


def test_an_answer_of_no_tokens_is_refused_with_how_many_there_are():
    workload = workload_of_columns([0.0] * 3, prompt_tokens=[5] * 3, output_tokens=[1, 0, 0])
    said = r"row 1: prompt_tokens is 5, output_tokens is 0; .*\(2 of 3 requests lack"
    with pytest.raises(InputError, match=said):
        simulate_fleet(workload, POLICIES["random"], BatchingFleet.of(ENGINE, 1))


@pytest.mark.parametrize("budget", [7, 16, 100, 1 << 20])
def test_what_is_reused_of_a_long_prompt_does_not_depend_on_the_chunk(budget):
    """1,000 tokens fill 62 blocks; all of them are reused, whatever an iteration computes."""
    workload = workload_of_columns(
        [0.0, 1e9],
        prompt_tokens=[1000, 1000],
        output_tokens=[1, 1],
        chain_start=[0, 62, 124],
        chain_blocks=[*range(62), *range(62)],
        block_size_tokens=16,
    )
    engine = Engine(COSTS, kv_blocks=100, max_num_batched_tokens=budget)
    run = simulate_fleet(workload, POLICIES["round_robin"], BatchingFleet.of(engine, 1))
    assert run.cached_tokens.tolist() == [0, 992]


def test_a_cache_for_one_of_two_growing_requests_ends_and_bounds_preemptions():
    """Each needs 25 of 26 blocks in the end: one is preempted, and both are finished."""
    workload = workload_of_columns([0.0, 0.0], prompt_tokens=[100, 100], output_tokens=[300, 300])
    engine = Engine(COSTS, kv_blocks=26, max_num_batched_tokens=1000)
    run = simulate_fleet(workload, POLICIES["round_robin"], BatchingFleet.of(engine, 1))
    assert run.finished.all()
    assert run.preemptions.tolist()[0] == 0
    assert 1 <= run.preemptions.tolist()[1] <= 300


@pytest.mark.parametrize("load", [0.5, 2.0])
def test_overload_costs_no_more_events_a_request_than_it_has_tokens(load):
    rng = np.random.default_rng(8)
    n = 2000
    workload = workload_of_columns(
        np.cumsum(rng.exponential(40.0 / load, n)),
        prompt_tokens=np.full(n, 64),
        output_tokens=np.full(n, 20),
    )
    run = simulate_fleet(workload, POLICIES["round_robin"], BatchingFleet.of(ENGINE, 1))
    assert run.finished.all()
    assert int(run.replicas["events"].sum()) < 22 * n


def test_no_time_limit_drops_a_request_however_long_it_waits():
    """One at a time, some 9 s each: the last of 200 waits half an hour."""
    one_seat = Engine(COSTS, kv_blocks=100, max_num_seqs=1)
    n = 200
    workload = workload_of_columns(
        np.zeros(n), prompt_tokens=np.full(n, 16), output_tokens=np.full(n, 1000)
    )
    run = simulate_fleet(workload, POLICIES["round_robin"], BatchingFleet.of(one_seat, 1))
    assert run.finished.all()
    # 8 + 8 for the prompt, 999 decodes of 9
    assert run.first_token_ms[-1] == pytest.approx(199 * (16.0 + 999 * 9.0) + 16.0)


def test_only_replicas_that_can_hold_a_request_are_its_candidates():
    """Replica 0 holds 160 tokens, and never gets one of 200, whoever's turn it is."""
    small = Engine(COSTS, kv_blocks=10)
    workload = workload_of_columns(
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
        prompt_tokens=[200, 200, 20, 200, 20, 20],
        output_tokens=[2] * 6,
    )
    run = simulate_fleet(workload, POLICIES["round_robin"], BatchingFleet((small, ENGINE)))
    assert run.replica.tolist() == [1, 1, 0, 1, 0, 1]
    assert run.finished.all()


def test_prompt_and_output_are_at_most_max_model_len():
    engine = Engine(COSTS, kv_blocks=100, max_model_len=64)
    workload = workload_of_columns([0.0, 0.0], prompt_tokens=[60, 60], output_tokens=[4, 5])
    run = simulate_fleet(workload, POLICIES["round_robin"], BatchingFleet.of(engine, 1))
    assert run.finished.tolist() == [True, False]


def test_gaps_and_samples_over_time_are_those_of_a_request_worked_out_by_hand():
    """32 ms of prefill, then every 900 ms a token: 932, 1832, 2732."""
    slow = Engine(IterationCosts(8.0, 0.5, 892.0, 0.0), kv_blocks=8)
    workload = workload_of_columns([0.0], prompt_tokens=[48], output_tokens=[4])
    run = simulate_fleet(workload, POLICIES["round_robin"], BatchingFleet.of(slow, 1))
    histogram = gaps_of(run)
    assert int(histogram.counts.sum()) == 3
    assert histogram.total_ms == pytest.approx(2700.0)
    step_ms, samples = even_samples(run.state)
    assert step_ms == 1000.0
    # At 0 nothing had come; then 49 and 50 tokens, four blocks of eight.
    assert samples[0].tolist() == [[0.0, 0.0, 0.0], [1.0, 0.0, 0.5], [1.0, 0.0, 0.5]]
