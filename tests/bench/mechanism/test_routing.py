"""Who gets which of the fixed costs."""

from __future__ import annotations

import pytest

from pointsman.bench.mechanism.routing import REQUEST_COSTS, STRATEGIES, queues_of


def test_the_costs_are_the_lessons():
    assert REQUEST_COSTS == (1, 8, 2, 7, 1, 6, 2, 5)


def test_round_robin_gives_the_second_of_two_ranks_all_that_is_dear():
    assert queues_of("round_robin", 2) == ((1, 2, 1, 2), (8, 7, 6, 5))  # 6 and 26 units


def test_least_loaded_gives_two_ranks_17_and_15_units():
    # 1 to 0 (1, 0); 8 to 1 (1, 8); 2 to 0 (3, 8); 7 to 0 (10, 8); 1 to 1 (10, 9);
    # 6 to 1 (10, 15); 2 to 0 (12, 15); 5 to 0 (17, 15).
    assert queues_of("least_loaded", 2) == ((1, 2, 7, 2, 5), (8, 1, 6))


@pytest.mark.parametrize("ranks", range(1, 11))
def test_least_loaded_sends_each_cost_to_the_rank_with_the_fewest_units(ranks):
    expected = [[] for _ in range(ranks)]
    for cost in REQUEST_COSTS:
        min(expected, key=sum).append(cost)
    assert queues_of("least_loaded", ranks) == tuple(map(tuple, expected))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 10])
def test_every_request_is_served_once(strategy, ranks):
    served = [cost for queue in queues_of(strategy, ranks) for cost in queue]
    assert sorted(served) == sorted(REQUEST_COSTS)
