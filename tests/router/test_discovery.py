import asyncio
import socket

import pytest

from pointsman.core.errors import InputError
from pointsman.router.discovery import Discovery, Names, _chosen, found_at
from pointsman.router.membership import Means, Membership
from pointsman.router.roster import Roster
from pointsman.router.upstream import replica_address
from tests.router.fake_replicas import FakeReplica
from tests.router.routers import run, until
from tests.router.serve_process import serving

NAME = replica_address("http://engines.example:8000")
OTHER = replica_address("http://others.example:9000")


class Dns:
    """A server of names that says what it is told to."""

    def __init__(self, **hosts: list[str]) -> None:
        self.hosts = hosts

    async def resolve(self, name):
        hosts = self.hosts.get(name.host.partition(".")[0])
        if not hosts:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return hosts


def looking(dns, main, names=(NAME,)):
    """Run ``main(discovery, membership, said)`` with replicas that are found by names alone."""

    async def whole():
        said: list[str] = []
        membership = Membership([], Means(), 8)
        roster = Roster(membership, [], said.append)
        discovery = Discovery(Names(names, ()), roster, said.append, dns.resolve)
        await discovery.look()
        try:
            return await main(discovery, membership, said)
        finally:
            membership.close()

    return run(whole())


def urls(membership):
    return [replica.url for replica in membership.members]


def test_each_address_is_a_replica_that_starts_slowly():
    async def main(discovery, membership, said):
        return urls(membership), [replica.state for replica in membership.members]

    found, states = looking(Dns(engines=["10.0.0.1", "10.0.0.2"]), main)
    assert found == ["http://10.0.0.1:8000", "http://10.0.0.2:8000"]
    assert states == ["warming", "warming"]


def test_an_address_that_is_gone_drains_until_its_last_request_has_ended():
    dns = Dns(engines=["10.0.0.1", "10.0.0.2"])

    async def main(discovery, membership, said):
        busy = membership.sent(0)
        dns.hosts["engines"] = ["10.0.0.2", "10.0.0.3"]
        await discovery.look()
        while_busy = membership.states(), list(membership.ready)
        membership.ended(busy)
        return while_busy, urls(membership)

    (states, ready), left = looking(dns, main)
    assert states[0] == "draining"
    assert ready == [1, 2]
    assert left == ["http://10.0.0.2:8000", "http://10.0.0.3:8000"]


def test_a_name_that_cannot_be_looked_up_changes_nothing_and_is_said_once():
    dns = Dns(engines=["10.0.0.1"])

    async def main(discovery, membership, said):
        dns.hosts.clear()
        said.clear()
        for _ in range(3):
            await discovery.look()
        return urls(membership), said

    left, said = looking(dns, main)
    assert left == ["http://10.0.0.1:8000"]
    assert len(said) == 1
    assert "engines.example:8000: cannot be looked up" in said[0]
    assert "its replicas stay" in said[0]


def test_one_name_that_fails_does_not_take_away_the_replicas_of_another():
    dns = Dns(engines=["10.0.0.1"], others=["10.0.0.7"])

    async def main(discovery, membership, said):
        del dns.hosts["others"]
        dns.hosts["engines"] = ["10.0.0.2"]
        await discovery.look()
        return urls(membership)

    found = looking(dns, main, names=(NAME, OTHER))
    assert sorted(found) == ["http://10.0.0.2:8000", "http://10.0.0.7:9000"]


def test_of_two_families_of_addresses_one_is_taken():
    v4, v6 = ("10.0.0.2", 1), ("fd00::1", 1, 0, 0)
    both = [(0, 0, 0, "", each) for each in (v6, v4, v4)]
    assert _chosen(both) == ["10.0.0.2"]
    assert _chosen([(0, 0, 0, "", v6)]) == ["fd00::1"]


def test_a_name_without_an_address_at_the_start_is_refused():
    with pytest.raises(InputError, match=r"--discover http://nobody.invalid:1: has no address"):
        found_at([replica_address("http://nobody.invalid:1")], 5.0)


def test_an_interval_that_would_flood_the_server_of_names_is_refused():
    with pytest.raises(InputError, match=r"interval_s is 0.01; expected at least 0.1"):
        Names((NAME,), (), 0.01)


def test_a_router_serves_from_replicas_that_it_found_by_name():
    async def main():
        async with FakeReplica() as fake:
            url = f"http://localhost:{fake.port}"
            with serving("--discover", url, "--discover-interval-s", "0.1") as router:
                await until(lambda: fake.probes > 0)
                _, writer = await asyncio.open_connection("127.0.0.1", router.port)
                writer.close()
                return router.announcement, router.stop()

    announcement, code = run(main())
    assert announcement.endswith("replicas: 1\n")
    assert code == 0
