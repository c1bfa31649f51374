"""A router that the system lets open few files."""

import asyncio
import subprocess
from contextlib import AsyncExitStack
from errno import EMFILE

import pytest

from pointsman.core.errors import MachineError
from pointsman.router.open_files import clients_with_files
from pointsman.router.probes import probe
from pointsman.router.settings import Probing, Resilience
from tests.router.fake_replicas import FakeReplica, answer_json
from tests.router.in_memory import World
from tests.router.raw_http import RawClient
from tests.router.routers import chat, run
from tests.router.serve_process import serving

CHAT = "/v1/chat/completions"


class WithoutFiles(World):
    async def _connect(self, address):
        raise OSError(EMFILE, "Too many open files")


def test_a_connection_that_the_router_may_not_open_is_a_503_and_no_fault_of_the_replica():
    async def main():
        world = WithoutFiles(Resilience())
        client = world.client()
        body = b'{"prompt":"x"}'
        head = b"POST /v1/completions HTTP/1.1\r\nhost: t\r\ncontent-length: 14\r\n\r\n"
        client.receive(head + body)
        await world.settle()
        await probe(world.membership[0], Probing())
        world.check_over()
        return bytes(client.sent), world.membership.states(), list(world.log.outcomes.values())

    answer, states, [outcome] = asyncio.run(main())
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"too_many_open_files" in answer
    assert states == {0: "up", 1: "up"}
    assert (outcome.status, outcome.error) == ("error", "too_many_open_files")


def test_with_few_files_clients_do_not_get_those_that_replicas_and_probes_need():
    """140 files, less 64 and 3 for the replica, are 36 clients with a connection to it each."""

    async def main():
        async with FakeReplica(answer_json) as fake, AsyncExitStack() as opened:
            flags = ("--replica", fake.url, "--probe-interval-ms", "50")
            with serving(*flags, stderr=subprocess.PIPE, open_files=140) as router:
                clients = [
                    await opened.enter_async_context(RawClient(router.port)) for _ in range(37)
                ]
                refused = (await clients[-1].response()).status
                statuses = {(await client.post(CHAT, chat())).status for client in clients[:36]}
                [replica] = (await clients[0].request("GET", "/health")).json["replicas"]
                router.stop()
                return refused, statuses, replica, router.process.stderr.read()

    refused, statuses, replica, told = run(main())
    assert (refused, statuses) == (503, {200})
    assert (replica["state"], replica["last_failure"]) == ("up", None)
    assert told == (
        "pointsman: --max-connections 4096 takes 8259 open files, the system allows 140"
        " (see ulimit -n): no more than 36 connections are taken\n"
    )


def test_where_there_are_files_for_nobody_it_does_not_start():
    with pytest.raises(MachineError, match=r"expected at least .* for 1000000000 replicas"):
        clients_with_files(1, 1_000_000_000, print)


def test_where_there_are_files_for_all_nothing_is_said():
    told: list[str] = []
    assert clients_with_files(1, 1, told.append) == 1
    assert told == []
