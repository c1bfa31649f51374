"""The search for the highest rate, on a service whose limit is known."""

from __future__ import annotations

import pytest

from pointsman.plan.rate import NEVER, RateLimit, highest_rate, rate_from


class Service:
    """Holds every rate up to its limit; counts the questions."""

    def __init__(self, limit: float) -> None:
        self.limit, self.asked = limit, 0

    def __call__(self, rate: float) -> bool:
        self.asked += 1
        return rate <= self.limit


@pytest.mark.parametrize("limit", [0.55, 0.9, 1.0, 1.07, 1.9])
def test_near_the_offered_rate_the_limit_is_known_to_two_percent(limit):
    found = highest_rate(Service(limit), at_one=limit >= 1.0)
    assert found.held <= limit < found.failed <= found.held * 1.0201


@pytest.mark.parametrize("limit", [0.02, 0.11, 3.3, 25.0])
def test_far_from_it_ten_percent_do_and_few_runs(limit):
    service = Service(limit)
    found = highest_rate(service, at_one=limit >= 1.0)
    assert found.held <= limit < found.failed <= found.held * 1.1001
    assert service.asked <= 11  # seven halvings at most, and three of the last factor of two


def test_what_holds_at_no_rate_costs_one_run():
    service = Service(0.0)
    assert highest_rate(service, at_one=False) == NEVER
    assert service.asked == 1


def test_beyond_what_may_be_asked_the_limit_stays_open():
    service = Service(1e9)
    assert rate_from(service, 1.0, most=3.0) == RateLimit(3.0, None)
    assert service.asked == 2
