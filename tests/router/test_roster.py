"""What becomes of the replicas in a membership when the file names others."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pointsman.core.files import Stamp, stamp_of
from pointsman.router.membership import Means, Membership
from pointsman.router.reloading import Config, Reloading
from pointsman.router.replica_options import ReplicaOptions
from pointsman.router.roster import Roster
from pointsman.router.settings import Probing, Resilience
from pointsman.router.upstream import replica_address

FILE = "serve.toml"


def named(name: str, **options) -> ReplicaOptions:
    return ReplicaOptions(replica_address(f"http://{name}"), **options)


class Fleet:
    """A membership of a file's replicas, and what its roster says."""

    def __init__(self, *options: ReplicaOptions, spare_slots: int = 8) -> None:
        means = Means(Resilience(probing=Probing(slow_start_ms=0.0)), lambda: 0.0)
        addresses = [each.address for each in options]
        self.membership = Membership(addresses, means, len(options) + spare_slots)
        for number, each in enumerate(options):
            self.membership.tell(number, each)
        self.said: list[str] = []
        self.roster = Roster(self.membership, options, self.said.append)

    def follow(self, *options: ReplicaOptions) -> dict[int, str]:
        """The file says this now; who is there then."""
        self.roster.follow(FILE, options)
        return {each.number: each.url.removeprefix("http://") for each in self.membership.members}


def test_the_same_file_changes_nothing_and_says_nothing():
    fleet = Fleet(named("a"), named("b", weight=2.0))
    assert fleet.follow(named("b", weight=2.0), named("a")) == {0: "a", 1: "b"}
    assert fleet.said == []


def test_all_that_is_done_is_one_line():
    fleet = Fleet(named("a"), named("b"))
    assert fleet.follow(named("a", weight=2.0), named("c")) == {0: "a", 2: "c"}
    assert fleet.said == [
        "serve.toml: changed http://a; added http://c; drains http://b and removes it"
    ]


def test_one_that_the_admin_api_drains_stays_so_until_its_table_changes():
    fleet = Fleet(named("a"), named("b"))
    fleet.membership.drain(1)
    fleet.follow(named("a", weight=2.0), named("b"))
    assert fleet.membership.states() == {0: "up", 1: "draining"}
    assert fleet.follow(named("a", weight=2.0), named("b", weight=2.0)) == {0: "a", 2: "b"}


def test_one_that_the_admin_api_added_is_the_files_once_that_names_it():
    fleet = Fleet(named("a"))
    fleet.membership.add(named("b").address)
    assert fleet.follow(named("a"), named("b")) == {0: "a", 1: "b"}
    assert fleet.said == []
    assert fleet.follow(named("a")) == {0: "a"}


def test_one_that_is_taken_back_while_it_drains_gets_a_new_number():
    fleet = Fleet(named("a"), named("b"))
    fleet.membership.sent(1)
    assert fleet.follow(named("a")) == {0: "a", 1: "b"}
    assert fleet.follow(named("a"), named("b")) == {0: "a", 1: "b", 2: "b"}
    assert fleet.membership.ready == [0, 2]


def test_where_all_numbers_have_been_used_one_line_says_so_and_nobody_is_drained_for_it():
    fleet = Fleet(named("a"), named("b"), spare_slots=0)
    assert fleet.follow(named("a", kv_events="tcp://a:1"), named("b")) == {0: "a", 1: "b"}
    assert fleet.membership.states() == {0: "up", 1: "up"}
    assert fleet.said == [
        "serve.toml: http://a is not added: all 2 numbers of replicas have been used, and none is"
        " used twice; restart the router to add more"
    ]
    fleet.follow(named("a", kv_events="tcp://a:1"), named("b"))
    assert len(fleet.said) == 2  # as long as the file wants what cannot be done


class Written:
    """A file that nobody parses, and how often it was read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stamp: Stamp = stamp_of(path)
        self.reads = 0

    def read(self) -> Config:
        self.stamp = stamp_of(self.path)
        self.reads += 1
        return Config(None)


def test_a_file_that_is_still_being_written_is_not_read(tmp_path):
    path = tmp_path / FILE
    path.write_text("whole")
    source = Written(path)

    async def main():
        reads = []
        reloading = Reloading(source, Fleet(named("a")).roster, print)
        reloading.start()
        for text in (None, "half", "half of it", None, None):
            if text is not None:
                path.write_text(text)
            reloading._look()
            reads.append(source.reads)
        reloading.stop()
        return reads

    assert asyncio.run(main()) == [0, 0, 0, 1, 1]
