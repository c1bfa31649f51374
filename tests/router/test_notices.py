"""What is said when replicas go away and come back."""

from __future__ import annotations

from pointsman.router.membership import Means, Membership
from pointsman.router.notices import Notices
from pointsman.router.settings import Probing, Resilience
from pointsman.router.upstream import replica_address


class Fleet:
    """Replicas whose health a test decides, a clock, and what is said of them."""

    def __init__(self, *names: str) -> None:
        self.now_s = 0.0
        self.said: list[str] = []
        means = Means(Resilience(probing=Probing(misses=2)), lambda: self.now_s)
        addresses = [replica_address(f"http://{name}") for name in names]
        self.membership = Membership(addresses, means, len(names))
        notices = Notices(self.membership, self.said.append, lambda: self.now_s)
        self.membership.on_changed = notices.changed

    def goes(self, number: int) -> None:
        self.membership[number].health.cannot_be_reached("Connection refused")

    def comes(self, number: int) -> None:
        self.membership[number].health.is_well()


def test_a_replica_that_goes_is_said_once_however_often_it_is_probed():
    fleet = Fleet("a", "b")
    for _ in range(50):
        fleet.goes(0)
        fleet.comes(1)
    assert fleet.said == ["replica http://a cannot be reached: Connection refused"]


def test_that_it_is_back_is_said_too():
    fleet = Fleet("a", "b")
    fleet.goes(0)
    fleet.comes(0)
    assert fleet.said[1:] == ["replica http://a is ready"]


def test_with_the_last_one_that_goes_it_is_said_that_none_is_ready():
    fleet = Fleet("a", "b")
    fleet.goes(0)
    fleet.goes(1)
    assert fleet.said[1] == (
        "replica http://b cannot be reached: Connection refused; no replica is ready"
    )


def test_what_a_probe_was_answered_is_said():
    fleet = Fleet("a", "b")
    fleet.membership[0].health.is_not_ready("answered a probe with 503")
    for _ in range(3):
        fleet.membership[1].health.missed_a_probe("answered a probe with 500")
    assert fleet.said == [
        "replica http://a is not ready: answered a probe with 503",
        "replica http://b is unwell: answered a probe with 500",
    ]


def test_one_that_comes_and_goes_is_said_to_and_then_left_alone_for_a_minute():
    fleet = Fleet("a", "b")
    for _ in range(100):
        fleet.goes(0)
        fleet.comes(0)
    assert len(fleet.said) == 6
    assert fleet.said[-1].startswith("replica http://a is ready; it comes and goes: no more is")
    fleet.goes(1)
    assert fleet.said[-1].startswith("replica http://b cannot be reached")
    fleet.comes(1)
    fleet.now_s = 60.0
    fleet.goes(0)
    assert fleet.said[-1] == "replica http://a cannot be reached: Connection refused"


def test_of_one_that_is_drained_nothing_is_said():
    fleet = Fleet("a", "b")
    fleet.membership.drain(0)
    fleet.goes(0)
    assert fleet.said == []
