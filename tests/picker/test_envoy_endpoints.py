"""Replicas that come and go while a real Envoy runs: it reads them from a file that is watched."""

import asyncio

import pytest

pytest.importorskip("grpc")

from pointsman.router.upstream import replica_address
from tests.picker.envoy_process import configuration, standing
from tests.router.fake_replicas import (
    CHUNKED,
    PIECES,
    FakeReplica,
    answer_json,
    chunk,
)
from tests.router.raw_http import RawClient
from tests.router.routers import completion, run, until

pytestmark = pytest.mark.envoy

COMPLETIONS = "/v1/completions"


def tell_envoy(file, *fakes):
    """These are the replicas from now on."""
    replicas = [word for fake in fakes for word in ("--replica", fake.url)]
    configuration(*replicas, "--endpoints", str(file))


async def served_by(stand) -> str:
    answer = await stand.post(COMPLETIONS, completion())
    assert answer.status == 200
    return answer.headers["x-pointsman-replica"]


async def served_by_all_of(stand, *fakes):
    """Wait until these, and no others, serve."""
    wanted = {fake.url for fake in fakes}
    async with asyncio.timeout(30):
        while {await served_by(stand) for _ in range(6)} != wanted:
            await asyncio.sleep(0.02)


def test_a_replica_that_is_added_serves_without_a_restart_of_envoy(tmp_path):
    file = tmp_path / "endpoints.json"

    async def main():
        flags = ("--endpoints", str(file))
        at_once = ("--slow-start-ms", "0")
        async with (
            FakeReplica(answer_json) as late,
            standing(tmp_path, answer_json, config=flags, pick=at_once) as stand,
        ):
            before = await served_by(stand)
            tell_envoy(file, *stand.fakes, late)
            stand.router.membership.add(replica_address(late.url))
            await served_by_all_of(stand, *stand.fakes, late)
            await until(lambda: stand.is_idle)
            return before == stand.fakes[0].url

    assert run(main())


def test_a_replica_that_is_removed_ends_what_it_has_begun_and_gets_no_more(tmp_path):
    file = tmp_path / "endpoints.json"
    may_go_on = asyncio.Event()

    async def slowly(request, wire):
        await wire.send(CHUNKED + chunk(PIECES[0]))
        await may_go_on.wait()
        await wire.send(chunk(PIECES[1]) + b"0\r\n\r\n")

    async def main():
        flags = ("--endpoints", str(file))
        async with (
            standing(tmp_path, slowly, answer_json, config=flags) as stand,
            RawClient(stand.port) as client,
        ):
            leaves, stays = stand.fakes
            client.send("POST", COMPLETIONS, completion(stream=True))
            _, headers = await client.head()
            stand.router.membership.remove(0)
            tell_envoy(file, stays)
            await served_by_all_of(stand, stays)
            may_go_on.set()
            _, is_whole = await client._body(headers)
            await until(lambda: stand.is_idle)
            return headers["x-pointsman-replica"] == leaves.url, is_whole, len(leaves.requests)

    assert run(main()) == (True, True, 1)


def test_what_only_the_picker_knows_is_served_by_another(tmp_path):
    file = tmp_path / "endpoints.json"

    async def main():
        flags = ("--endpoints", str(file))
        async with standing(tmp_path, answer_json, answer_json, config=flags) as stand:
            await served_by_all_of(stand, *stand.fakes)
            tell_envoy(file, stand.fakes[0])
            await served_by_all_of(stand, stand.fakes[0])
            tell_envoy(file, *stand.fakes)
            await served_by_all_of(stand, *stand.fakes)
            await until(lambda: stand.is_idle)

    run(main())
