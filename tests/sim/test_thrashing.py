"""What is computed again because it was evicted, worked out by hand: blocks of four tokens."""

from __future__ import annotations

import pytest

from pointsman import POLICIES
from pointsman.metrics.serving import serving_metrics
from pointsman.sim.batching import FleetRun, simulate_fleet
from pointsman.sim.conditions import Change, Conditions
from pointsman.sim.outcome import answers_of, loads_of
from tests.small_fleets import alike, asked, split

# Three prompts of two blocks and a token, one after the other, and again. Each takes three blocks:
# of four, so that each drives out what the others left.
A, B, C = (1, 2), (3, 4), (5, 6)
ROUNDS = asked(*((100 * k, 9, 1, chain) for k, chain in enumerate((A, B, C) * 2)))


def run(workload, fleet, conditions: Conditions | None = None) -> FleetRun:
    return simulate_fleet(workload, POLICIES["round_robin"], fleet, conditions or Conditions())


def figures(done: FleetRun):
    return serving_metrics(answers_of(done), loads_of(done), None, gpus=1)


def test_a_working_set_beyond_the_cache_is_computed_again_each_time():
    """All but the last token of three prompts of nine, of six in all."""
    done = run(ROUNDS, alike(1, kv_blocks=4))
    assert done.cached_tokens.tolist() == [0] * 6
    assert done.recomputed_tokens.tolist() == [0, 0, 0, 8, 8, 8]
    assert figures(done).recomputed_token_fraction == pytest.approx(24 / 54)


def test_in_a_cache_that_holds_it_nothing_is_computed_again():
    done = run(ROUNDS, alike(1, kv_blocks=9))
    assert done.cached_tokens.tolist() == [0, 0, 0, 8, 8, 8]
    assert figures(done).recomputed_token_fraction == 0.0
    assert figures(done).evictions == 0


def test_what_is_left_of_a_prefix_is_not_computed_again():
    """The first leaves b2 b3 b1 b0 in the queue; the second takes three of them, block 2 in b1."""
    done = run(
        asked((0, 8, 1, A), (100, 12, 1), (200, 9, 1, A)),
        alike(1, kv_blocks=4),
    )
    assert done.cached_tokens.tolist() == [0, 0, 4]
    assert done.recomputed_tokens.tolist() == [0, 0, 4]
    assert figures(done).evictions == 1


def test_prompts_that_never_come_again_evict_and_lose_nothing():
    """Of four blocks: the second takes b3 b2 b1, where 2 was; the third b0, b1 and b2: 1 and 4."""
    done = run(asked((0, 9, 1, A), (100, 9, 1, B), (200, 9, 1, C)), alike(1, kv_blocks=4))
    assert figures(done).evictions == 3
    assert figures(done).recomputed_token_fraction == 0.0


def test_what_another_replica_had_counts_for_that_one_alone():
    """In turn: A, C and B on the first replica, B, A and C on the second."""
    done = run(ROUNDS, alike(2, kv_blocks=4))
    assert done.recomputed_tokens.tolist() == [0] * 6


def test_a_cache_that_died_with_its_replica_evicted_nothing():
    changes = (Change(100.0, 0, "dies"), Change(150.0, 0, "joins"))
    done = run(asked((0, 9, 1, A), (200, 9, 1, A)), alike(1), Conditions(changes=changes))
    assert done.cached_tokens.tolist() == [0, 0]
    assert done.recomputed_tokens.tolist() == [0, 0]


def test_of_a_split_fleet_the_prefill_replicas_cache_counts():
    done = run(ROUNDS, split(1, 1, kv_blocks=4))
    assert done.recomputed_tokens.tolist() == [0, 0, 0, 8, 8, 8]
