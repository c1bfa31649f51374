"""Replicas that go, come back, and say how they are."""

import json

import numpy as np
import pytest

from pointsman.dispatch.log_file import read_log
from pointsman.replay.replay import replay_same
from pointsman.router.membership import Means, Membership
from pointsman.router.messages import ClientRequest
from pointsman.router.prompt import QuestionReader
from pointsman.router.settings import Probing, Resilience
from pointsman.router.upstream import replica_address
from tests.router.fake_replicas import (
    FakeReplica,
    answer_json,
    answer_stream,
    never_answer,
    sized,
)
from tests.router.raw_http import RawClient
from tests.router.routers import Bench, bench, chat, run, until

CHAT = "/v1/chat/completions"


async def shown(at: Bench) -> list[dict]:
    return (await at.client.request("GET", "/health")).json["replicas"]


def states(at: Bench) -> list[str]:
    return [replica.state for replica in at.router.membership.members]


def says(status: bytes):
    async def script(request, wire):
        await wire.send(sized(b"{}", status=status))

    return script


async def hangs_up(request, wire):
    wire.die()


RARE = Probing(interval_ms=1e9, slow_start_ms=0.0)


@pytest.mark.parametrize("policy", ["round_robin", "least_requests", "locality_aware"])
@pytest.mark.parametrize("retries", [0, 1])
def test_a_replica_that_stops_costs_an_error_only_without_retries_and_is_left_out_until_it_is_back(
    tmp_path, policy, retries
):
    async def main():
        settings = {"policy": policy, "log": tmp_path / "log", "retries": retries}
        async with bench(answer_json, answer_json, **settings, probing=RARE) as at:
            stopped = at.fakes[0]
            await stopped.__aexit__()
            answers = [await at.client.post(CHAT, chat()) for _ in range(20)]
            return [answer.status for answer in answers], await shown(at)

    statuses, replicas = run(main())
    assert statuses.count(200) == 19 + retries
    assert statuses.count(502) == 1 - retries
    assert [replica["state"] for replica in replicas] == ["unreachable", "up"]
    assert replicas[0]["last_failure"]["error"] == "Connection refused"
    assert replicas[0]["last_failure"]["ago_s"] >= 0
    assert replicas[1]["last_failure"] is None
    log = read_log(tmp_path / "log")
    assert {tuple(choice.candidates) for choice in log.choices} == {(0, 1), (1,)}
    assert replay_same(log).differences == []


def test_a_probe_brings_a_replica_back_without_any_request():
    async def main():
        async with bench(answer_json, answer_json) as at:
            stopped = at.fakes[0]
            await stopped.__aexit__()
            await until(lambda: states(at) == ["unreachable", "up"])
            async with FakeReplica(port=stopped.port):
                await until(lambda: states(at) == ["up", "up"])
            return at.fakes[1].requests

    assert run(main()) == []


@pytest.mark.parametrize("status", [b"404 Not Found", b"401 Unauthorized", b"204 No Content"])
def test_an_engine_without_that_path_counts_as_up(status):
    async def main():
        async with bench(answer_json) as at:
            at.fake.health = says(status)
            await until(lambda: at.fake.probes >= 4)
            return states(at)

    assert run(main()) == ["up"]


def test_a_replica_that_says_503_gets_nothing_until_it_says_otherwise():
    """llama.cpp answers so while it loads its model."""

    async def main():
        async with bench(answer_json, answer_json) as at:
            at.fake.health = says(b"503 Service Unavailable")
            await until(lambda: states(at) == ["not_ready", "up"])
            for _ in range(10):
                await at.client.post(CHAT, chat())
            away = len(at.fake.requests)
            at.fake.health = says(b"200 OK")
            await until(lambda: states(at) == ["up", "up"])
            await at.client.post(CHAT, chat())
            await at.client.post(CHAT, chat())
            return away, len(at.fake.requests)

    assert run(main()) == (0, 1)


@pytest.mark.parametrize("health", [never_answer, hangs_up, says(b"500 Oops")])
def test_a_replica_that_misses_two_probes_is_left_out(health):
    async def main():
        probing = Probing(interval_ms=20.0, slow_start_ms=0.0, answer_ms=20.0)
        async with bench(answer_json, answer_json, probing=probing) as at:
            at.fake.health = health
            await until(lambda: states(at) == ["unwell", "up"])
            statuses = [(await at.client.post(CHAT, chat())).status for _ in range(10)]
            return statuses, len(at.fake.requests)

    assert run(main()) == ([200] * 10, 0)


def test_where_all_miss_their_probes_all_are_used():
    async def main():
        async with bench(answer_json, answer_json) as at:
            for fake in at.fakes:
                fake.health = hangs_up
            await until(lambda: states(at) == ["unwell", "unwell"])
            ready = await at.client.request("GET", "/ready")
            for _ in range(10):
                assert (await at.client.post(CHAT, chat())).status == 200
            return ready.status, [len(fake.requests) for fake in at.fakes]

    assert run(main()) == (503, [5, 5])


def test_ready_is_200_only_while_a_replica_is_up():
    async def main():
        async with bench(answer_json, answer_json) as at:
            answers = [await at.client.request("GET", "/ready")]
            for fake in at.fakes:
                answers.append(await at.client.request("GET", "/ready"))
                await fake.__aexit__()
            await until(lambda: states(at) == ["unreachable"] * 2)
            answers.append(await at.client.request("GET", "/ready"))
            return [(answer.status, answer.json) for answer in answers]

    yes, no = (200, {"ready": True}), (503, {"ready": False})
    assert run(main()) == [yes, yes, yes, no]


def test_a_replica_that_came_back_gets_its_share_little_by_little():
    """After a quarter of the time a quarter of the requests may go there, evenly spread."""
    now_s = [100.0]
    resilience = Resilience(probing=Probing(slow_start_ms=1000.0))
    addresses = [replica_address("http://a"), replica_address("http://b")]
    membership = Membership(addresses, Means(resilience, lambda: now_s[0]), slots=2)
    membership[0].health.cannot_be_reached("test")
    membership[0].health.was_reached()
    for now_s[0], expected in ((100.0, 0), (100.25, 25), (100.5, 50), (100.75, 75), (101.0, 100)):
        choices = [membership.candidates(set(), membership.next_draw()) for _ in range(100)]
        assert abs(sum(0 in candidates for candidates in choices) - expected) <= 2
        assert all(1 in candidates for candidates in choices)


def test_a_warming_replica_gets_all_where_it_is_alone():
    async def main():
        probing = Probing(interval_ms=1e9, slow_start_ms=1e9)
        async with bench(answer_json, probing=probing) as at:
            at.router.membership[0].health.start_slowly()
            state = states(at)
            return state, [(await at.client.post(CHAT, chat())).status for _ in range(5)]

    assert run(main()) == (["warming"], [200] * 5)


def test_what_is_in_flight_is_counted_while_health_comes_and_goes():
    async def main():
        async with bench(answer_stream, never_answer) as at:
            clients = [RawClient(at.port) for _ in range(6)]
            for client in clients:
                await client.__aenter__()
                client.send("POST", CHAT, chat())
            await until(lambda: len(at.fakes[1].requests) == 3)
            counts = set()
            for health in (says(b"503 No"), says(b"200 OK")) * 3:
                probes = at.fakes[1].probes
                at.fakes[1].health = health
                await until(lambda seen=probes: at.fakes[1].probes >= seen + 2)
                counts.add((await shown(at))[1]["in_flight"])
            for client in clients:
                await client.__aexit__()
            await until(lambda: at.router.dispatcher.ledger.in_flight == 0)
            return counts, [replica["in_flight"] for replica in await shown(at)]

    assert run(main()) == ({3}, [0, 0])


def test_probes_of_a_replica_that_answers_slowly_hold_up_nobody():
    async def main():
        probing = Probing(interval_ms=10.0, slow_start_ms=0.0)
        async with bench(answer_json, answer_json, probing=probing) as at:
            at.fake.health = never_answer
            await until(lambda: at.fake.probes >= 1)
            seen = at.fakes[1].probes
            await until(lambda: at.fakes[1].probes >= seen + 3)
            return at.fake.probes

    assert run(main()) == 1


def test_a_replica_that_may_have_been_started_anew_holds_no_prefix_any_more():
    async def main():
        async with bench(answer_json, answer_json) as at:
            text = "a prompt of several blocks " * 40
            for _ in range(2):
                await at.client.post(CHAT, chat(text))
            prefixes, health = at.router.dispatcher.prefixes, at.router.membership[0].health
            chain = chain_of_chat(text)
            before = held_by(prefixes, chain)
            health.cannot_be_reached("for the test")
            health.was_reached()
            return before, held_by(prefixes, chain)

    before, after = run(main())
    assert min(before) > 0.0
    assert after == [0.0, before[1]]


def held_by(prefixes, chain) -> list[float]:
    row = np.zeros(2)
    prefixes.fill(chain, row)
    return row.tolist()


def chain_of_chat(text: str):
    body = json.dumps(chat(text)).encode()
    request = ClientRequest(b"POST", CHAT.encode(), [], body, keep_alive=True, http_1_1=True)
    return QuestionReader(session_key=bytes(16)).question(request, "r").chain
