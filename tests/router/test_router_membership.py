"""Replicas that are added, drained and removed while the router runs."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from pointsman.dispatch.log_file import read_log
from pointsman.replay.replay import replay_same
from pointsman.router.listening import listener_on
from pointsman.router.membership import MembershipError
from pointsman.router.settings import Holding
from pointsman.router.upstream import replica_address
from tests.router.fake_replicas import (
    CHUNKED,
    DONE,
    PIECES,
    FakeReplica,
    answer_json,
    chunk,
    stalls,
    stream_then,
)
from tests.router.raw_http import RawClient
from tests.router.routers import Bench, bench, chat, run, until

CHAT = "/v1/chat/completions"
KEY = b"a key of some length"


@asynccontextmanager
async def administered(*scripts, key: bytes | None = None, spare_slots: int = 4, **settings):
    """Yields a Bench and a client of its admin API."""
    async with bench(*scripts, spare_slots=spare_slots, **settings) as at:
        with listener_on("127.0.0.1", 0) as listener:
            await at.router.start_admin(listener, key)
            async with RawClient(listener.getsockname()[1]) as admin:
                yield at, admin


async def ask(at: Bench, count: int) -> list[int]:
    return [(await at.client.post(CHAT, chat())).status for _ in range(count)]


def test_a_replica_that_is_added_gets_the_next_number_and_its_share(tmp_path):
    async def main():
        async with (
            administered(answer_json, log=tmp_path / "log") as (at, admin),
            FakeReplica() as new,
        ):
            await ask(at, 2)
            added = await admin.post("/replicas", {"url": new.url})
            statuses = await ask(at, 4)
            shown = (await admin.request("GET", "/replicas")).json
            return added, statuses, len(new.requests), shown, [at.fake.url, new.url]

    added, statuses, reached, shown, urls = run(main())
    assert (added.status, added.json["id"], added.json["state"]) == (201, 1, "up")
    assert (statuses, reached) == ([200] * 4, 2)
    assert [(replica["id"], replica["url"]) for replica in shown] == list(enumerate(urls))
    log = read_log(tmp_path / "log")
    assert log.replicas == urls
    assert [choice.candidates for choice in log.choices] == [[0]] * 2 + [[0, 1]] * 4
    assert replay_same(log).differences == []


def test_a_replica_that_drains_ends_its_streams_and_gets_no_new_request():
    async def main():
        goes_on = asyncio.Event()

        async def script(request, wire):
            await wire.send(CHUNKED + chunk(PIECES[0]))
            await goes_on.wait()
            await wire.send(chunk(PIECES[1] + DONE) + b"0\r\n\r\n")

        async with administered(script, answer_json) as (at, admin), RawClient(at.port) as stream:
            stream.send("POST", CHAT, chat(stream=True))
            await until(lambda: len(at.fake.requests) == 1)
            drained = await admin.post("/replicas/0/drain", b"")
            statuses = await ask(at, 10)
            goes_on.set()
            ended = await stream.response()
            shown = (await at.client.request("GET", "/health")).json["replicas"]
            return drained, statuses, ended, len(at.fake.requests), shown

    drained, statuses, ended, reached, shown = run(main())
    assert (drained.json["state"], drained.json["in_flight"]) == ("draining", 1)
    assert statuses == [200] * 10
    assert (ended.is_whole, ended.body.endswith(DONE), reached) == (True, True, 1)
    assert [(replica["state"], replica["in_flight"]) for replica in shown] == [
        ("draining", 0),
        ("up", 0),
    ]


def test_a_replica_that_is_deleted_goes_when_its_last_request_has_ended():
    async def main():
        async with (
            administered(stream_then(3, stalls), answer_json) as (at, admin),
            RawClient(at.port) as stream,
        ):
            stream.send("POST", CHAT, chat(stream=True))
            await until(lambda: len(at.fake.requests) == 1)
            first = await admin.request("DELETE", "/replicas/0")
            statuses = await ask(at, 4)
            stream.writer.close()
            await until(lambda: at.router.membership.ids == [1])
            again = await admin.request("DELETE", "/replicas/0")
            await until(lambda: at.fake.open_connections == 0)
            return first.json["state"], statuses, again

    state, statuses, again = run(main())
    assert (state, statuses) == ("draining", [200] * 4)
    assert (again.status, again.json["error"]["code"]) == (404, "unknown_replica")
    assert again.json["error"]["message"] == "replica 0 is not there; expected one of: 1"


def test_a_replica_that_is_deleted_now_breaks_its_streams_off_and_says_so():
    async def main():
        async with (
            administered(stream_then(3, stalls), answer_json) as (at, admin),
            RawClient(at.port) as stream,
        ):
            stream.send("POST", CHAT, chat(stream=True))
            await until(lambda: len(at.fake.requests) == 1)
            await stream.head()
            await admin.request("DELETE", "/replicas/0?now=true")
            rest = await stream.reader.read()
            await until(lambda: at.fake.open_connections == 0)
            return rest, at.router.membership.ids, at.router.dispatcher.ledger.in_flight

    rest, ids, left = run(main())
    assert b'"code":"replica_lost"' in rest
    assert b"[DONE]" not in rest
    assert (ids, left) == ([1], 0)


def test_numbers_are_never_used_twice_and_run_out_with_a_clear_word():
    async def main():
        async with administered(answer_json, spare_slots=2) as (at, admin):
            numbers = []
            for port in (1, 2):
                added = await admin.post("/replicas", {"url": f"http://127.0.0.1:{port}"})
                numbers.append(added.json["id"])
                await admin.request("DELETE", f"/replicas/{added.json['id']}")
            refused = await admin.post("/replicas", {"url": "http://127.0.0.1:1"})
            return numbers, refused, await ask(at, 2)

    numbers, refused, statuses = run(main())
    assert numbers == [1, 2]
    assert (refused.status, refused.json["error"]["code"]) == (409, "no_slots")
    assert "all 3 numbers of replicas have been used" in refused.json["error"]["message"]
    assert statuses == [200, 200]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("POST", "/replicas", {"url": "https://a"}, 400, "url https://a: is no address"),
        ("POST", "/replicas", {"url": 5}, 400, "the body cannot be read: Expected `str`"),
        ("POST", "/replicas", {"ulr": "http://a"}, 400, "unknown field `ulr`"),
        ("POST", "/replicas", b"", 400, "the body cannot be read"),
        ("POST", "/replicas/7/drain", b"", 404, "replica 7 is not there; expected one of: 0"),
        ("DELETE", "/replicas/1", b"", 404, "replica 1 is not there"),
        ("DELETE", "/replicas/0?now=yes", b"", 400, "the query 'now=yes' is unknown"),
        ("DELETE", "/replicas/x", b"", 404, "DELETE /replicas/x is not there"),
        ("GET", "/", b"", 404, "see GET /replicas"),
        ("PUT", "/replicas", b"", 404, "PUT /replicas is not there"),
    ],
)
def test_a_wrong_word_to_the_admin_api_changes_nothing(method, path, body, status, message):
    async def main():
        async with administered(answer_json) as (at, admin):
            answer = await admin.request(method, path, body)
            return answer, at.router.membership.states(), at.complaints

    answer, states, complaints = run(main())
    assert answer.status == status
    assert message in answer.json["error"]["message"]
    assert (states, complaints) == ({0: "up"}, [])


def test_an_address_that_is_there_is_not_added_again():
    async def main():
        async with administered(answer_json) as (at, admin):
            return at.fake.url, await admin.post("/replicas", {"url": at.fake.url})

    url, answer = run(main())
    assert (answer.status, answer.json["error"]["message"]) == (409, f"{url} is replica 0, up")


def test_pages_in_a_browser_may_not_use_it():
    async def main():
        async with administered(answer_json) as (at, admin):
            page = {"origin": "http://evil.example"}
            return (await admin.post("/replicas", {"url": "http://a"}, **page)).status, len(
                at.router.membership.ids
            )

    assert run(main()) == (403, 1)


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": KEY.decode()}, 401),
        ({"authorization": f"Bearer {KEY.decode()}"}, 200),
    ],
)
def test_with_a_key_nobody_gets_in_without_it(given, status):
    async def main():
        async with administered(answer_json, key=KEY) as (_, admin):
            return (await admin.request("GET", "/replicas", **given)).status

    assert run(main()) == status


def test_where_the_last_replica_is_removed_requests_wait_for_a_new_one():
    async def main():
        async with (
            administered(answer_json, holding=Holding(timeout_ms=1e6)) as (at, admin),
            FakeReplica() as new,
        ):
            await admin.request("DELETE", "/replicas/0")
            at.client.send("POST", CHAT, chat())
            await until(lambda: at.router.admission.held == 1)
            ready = (await admin.request("GET", "/replicas")).json
            await admin.post("/replicas", {"url": new.url})
            return ready, (await at.client.response()).status

    assert run(main()) == ([], 200)


def test_no_request_hangs_or_fails_while_replicas_come_and_go(tmp_path):
    async def load(port: int, ends: asyncio.Event) -> list[int]:
        async with RawClient(port) as client:
            statuses = []
            while not ends.is_set():
                statuses.append((await client.post(CHAT, chat())).status)
            return statuses

    async def main():
        async with administered(answer_json, spare_slots=40, log=tmp_path / "log") as (at, admin):
            ends = asyncio.Event()
            loads = [asyncio.ensure_future(load(at.port, ends)) for _ in range(12)]
            last = 0
            for _ in range(40):
                async with FakeReplica() as new:
                    added = (await admin.post("/replicas", {"url": new.url})).json["id"]
                    await until(lambda seen=new: len(seen.requests) > 3)
                    await admin.request("DELETE", f"/replicas/{added}")
                    await until(lambda number=added: number not in at.router.membership.ids)
                last = added
            ends.set()
            statuses = await asyncio.gather(*loads)
            return last, {status for each in statuses for status in each}, sum(map(len, statuses))

    last, statuses, count = run(main())
    assert (last, statuses) == (40, {200})
    log = read_log(tmp_path / "log")
    assert len(log.choices) == len(log.outcomes) == count
    assert len(log.replicas) == 41
    assert replay_same(log).differences == []


def test_the_class_alone_adds_drains_removes_and_tells():
    async def main():
        async with bench(answer_json, spare_slots=1) as at:
            members = at.router.membership
            added = members.add(replica_address("http://127.0.0.1:1"))
            states = [members.states()]
            members.drain(0)
            states.append(members.states())
            members.remove(0)
            with pytest.raises(MembershipError, match="replica 0 is not there"):
                members.drain(0)
            return added.number, states, members.ids

    number, states, ids = run(main())
    assert number == 1
    assert states == [{0: "up", 1: "up"}, {0: "draining", 1: "up"}]
    assert ids == [1]
