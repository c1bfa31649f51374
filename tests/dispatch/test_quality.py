"""What the choices of a live router lead to, in virtual time: faults that it must not have."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from pointsman.dispatch.dispatcher import Dispatcher, Question, Rules
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.policies.catalogue import policy_named
from tests.dispatch.toy_fleet import Arrival, ToyFleet

OURS = ("fewest_misses", "earliest_first_token")


def poisson(rate_per_s: float, count: int, seed: int = 1) -> list[float]:
    draws = random.Random(seed)
    times, now_ms = [], 0.0
    for _ in range(count):
        now_ms += draws.expovariate(rate_per_s / 1000.0)
        times.append(now_ms)
    return times


def distinct(rate_per_s: float, count: int, blocks: int = 32) -> list[Arrival]:
    """Prompts of 2,048 tokens, 102.4 ms of prefill each, that share nothing."""
    times = poisson(rate_per_s, count)
    return [Arrival(ms, tuple(range(k * blocks, (k + 1) * blocks))) for k, ms in enumerate(times)]


def share_of(served, replica: int) -> float:
    return sum(one.replica == replica for one in served) / len(served)


@pytest.mark.parametrize("policy", OURS)
def test_a_replica_that_is_slower_than_it_should_be_gets_less_where_nothing_is_cached(policy):
    """All prompts are different; replica 2 takes four times as long as anybody was told."""
    served = ToyFleet(policy, (1.0, 1.0, 4.0)).run(distinct(15.0, 900))
    assert share_of(served[300:], 2) < 0.2
    assert share_of(served[300:], 2) > 0.0


@pytest.mark.parametrize("policy", OURS)
def test_every_replica_has_its_share_where_nothing_recurs(policy):
    served = ToyFleet(policy, (1.0,) * 5).run(distinct(30.0, 1000))
    counts = Counter(one.replica for one in served)
    assert set(counts) == set(range(5))
    assert max(counts.values()) < 2 * min(counts.values())


def shared(rate_per_s: float, count: int) -> list[Arrival]:
    """Eight prefixes of 24 blocks, each prompt with 8 of its own."""
    draws = random.Random(3)
    found = []
    for k, ms in enumerate(poisson(rate_per_s, count)):
        prefix = 1000 * draws.randrange(8)
        own = 100_000 + 8 * k
        found.append(Arrival(ms, (*range(prefix, prefix + 24), *range(own, own + 8))))
    return found


@pytest.mark.parametrize("policy", OURS)
def test_under_heavy_load_locality_is_kept(policy):
    """27 a second on 4 replicas without hits is 0.7 of what they hold; replica 0 is slow, so that
    they are never balanced."""
    arrivals = shared(27.0, 1500)
    slowness = (1.6, 1.0, 1.0, 1.0)
    ours = ToyFleet(policy, slowness).run(arrivals)
    turns = ToyFleet("round_robin", slowness).run(arrivals)

    def hits(served):
        return sum(one.hit_blocks for one in served) / (24 * len(served))

    assert hits(ours) > 0.95
    # After its first eight prompts everybody holds everything here; what counts is early.
    assert hits(ours[:60]) > hits(turns[:60])


def test_one_long_prompt_counts_more_than_ten_short_ones():
    deciding = Dispatcher(
        Rules(policy_named("earliest_first_token")), [ReplicaFacts()] * 2, lambda: 0.0
    )
    deciding.choose(Question("long", prompt_tokens=100_000, streams=True), [0])
    for number in range(10):
        short = Question(f"short {number}", prompt_tokens=500, streams=True)
        assert deciding.choose(short).replica == 1


def test_a_hot_prefix_spills_and_no_choice_for_it_waits_beyond_its_bound():
    """One prefix for all, at 2.4 times what one replica holds: 16 of 40 blocks are each one's own,
    51.2 ms; the slack is 100 ms."""
    own = 16
    arrivals = [
        Arrival(ms, (*range(24), *range(1000 + own * k, 1000 + own * (k + 1))))
        for k, ms in enumerate(poisson(47.0, 2000, seed=5))
    ]
    served = ToyFleet("locality_aware:slack_ms=100", (1.0,) * 4).run(arrivals)
    assert len({one.replica for one in served[20:]}) > 2
    # Its own uncached rest is one prefill: what was expected is what came, but for one of those.
    late = np.array([one.wait_ms - one.expected_ms for one in served])
    assert late.max() <= 24 * 64 * 0.05


def test_the_expected_wait_is_what_comes_where_costs_are_known():
    """But for the iteration that each prefill is expected to take besides, 6 ms of 108."""
    served = ToyFleet("earliest_first_token", (1.0, 1.0)).run(distinct(14.0, 800))
    waited = np.array([one.wait_ms for one in served])
    expected = np.array([one.expected_ms for one in served])
    assert waited.mean() > 20.0
    assert abs(expected.mean() / waited.mean() - 1.0) < 0.15
