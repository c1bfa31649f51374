"""Samples of each replica over time."""

from __future__ import annotations

from pointsman import workload_of_columns
from pointsman.comparison.over_time import MOST_SAMPLES, over_time_of
from pointsman.costs.iteration import IterationCosts
from pointsman.policies.policy import policy
from pointsman.sim.batching import BatchingFleet, Engine, simulate_fleet

# 8 ms, 0.5 a prompt token, 892 a request that decodes: a prompt of 48 takes 32 ms, a token 900.
SLOW = IterationCosts(8.0, 0.5, 892.0, 0.0)
MADE_UP = Engine(SLOW, kv_blocks=20, max_num_seqs=1)


@policy(rule="r", source="s", reasons=("first",), reads=())
def first(request, view, parameters):
    return 0, 0


def sampled(output_tokens: list[int]):
    count = len(output_tokens)
    workload = workload_of_columns(
        [0.0] * count, prompt_tokens=[48] * count, output_tokens=output_tokens
    )
    return over_time_of(simulate_fleet(workload, first, BatchingFleet.of(MADE_UP, 2)))


def test_a_sample_is_of_the_replica_as_it_stood_at_that_instant():
    """Tokens at 32, 932, 1832, 2732 ms: at 1 and 2 s 49 and 50 tokens take 4 blocks of 20."""
    over_time = sampled([4])
    assert over_time.step_ms == 1000.0
    busy, idle = over_time.replicas
    assert (busy.running, busy.waiting) == ((0, 1, 1), (0, 0, 0))
    assert busy.kv_used_fraction == (0.0, 0.2, 0.2)
    assert (idle.running, idle.kv_used_fraction) == ((0, 0, 0), (0.0, 0.0, 0.0))


def test_a_long_run_has_wider_steps_and_no_more_samples():
    """100 tokens take 32 + 99 x 900 = 89,132 ms, the other request as long after it: samples of
    0..178 s, of which each third is kept."""
    over_time = sampled([100, 100])
    assert over_time.step_ms == 3000.0
    busy = over_time.replicas[0]
    assert busy.running == (0,) + (1,) * (MOST_SAMPLES - 1)
    assert busy.waiting == (0,) + (1,) * 29 + (0,) * 30
    # at 177 s the 98th token is out, and 48 + 98 tokens take 10 blocks
    assert (busy.kv_used_fraction[1], busy.kv_used_fraction[-1]) == (0.2, 0.5)
