"""A request whose answer has not begun, tried on another replica; and what is never tried again."""

import asyncio

import pytest

from pointsman.dispatch.log_file import read_log
from pointsman.replay.replay import replay_same
from pointsman.replay.workload import workload_of_log
from tests.router.fake_replicas import (
    CHUNKED,
    answer_json,
    answer_stream,
    never_answer,
    sized,
)
from tests.router.raw_http import RawClient
from tests.router.routers import Bench, bench, chat, completion, run, until
from tests.router.test_router_health import RARE

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


async def dies_at_once(request, wire):
    wire.die()


async def dies_within_the_head(request, wire):
    await wire.send(CHUNKED[:30])
    wire.die()


async def says_500(request, wire):
    await wire.send(sized(b'{"error":{"message":"out of memory"}}', status=b"500 Oops"))


async def says_503(request, wire):
    await wire.send(sized(b'{"error":{"message":"loading"}}', status=b"503 Later"))


async def talks_nonsense(request, wire):
    await wire.send(b"SSH-2.0-OpenSSH\r\n\r\n")


def reached(at: Bench) -> list[int]:
    return [len(fake.requests) for fake in at.fakes]


@pytest.mark.parametrize("script", [dies_at_once, dies_within_the_head])
@pytest.mark.parametrize(("path", "body"), [(CHAT, chat(stream=True)), (COMPLETIONS, completion())])
def test_a_request_whose_replica_is_lost_is_tried_on_another_one_and_says_so(
    tmp_path, script, path, body
):
    async def main():
        async with bench(script, answer_stream, log=tmp_path / "log") as at:
            response = await at.client.post(path, body, x_request_id="mine")
            return response, at.fakes, at.router.dispatcher.ledger.in_flight

    response, fakes, left = run(main())
    assert (response.status, response.is_whole) == (200, True)
    assert response.headers["x-pointsman-attempts"] == "2"
    assert response.headers["x-pointsman-replica"] == fakes[1].url
    assert [len(fake.requests) for fake in fakes] == [1, 1]
    assert fakes[0].requests[0].body == fakes[1].requests[0].body
    assert left == 0
    log = read_log(tmp_path / "log")
    assert [(choice.request_id, choice.attempt) for choice in log.choices] == [
        ("mine", 1),
        ("mine", 2),
    ]
    assert [choice.candidates for choice in log.choices] == [[0, 1], [1]]
    first, second = log.outcomes[0], log.outcomes[1]
    assert (first.status, first.http_status, first.error) == ("retried", None, "replica_lost")
    assert (second.status, second.http_status, second.error) == ("ok", 200, None)
    assert replay_same(log).differences == []


def test_a_request_that_was_tried_twice_is_one_request_of_the_workload(tmp_path):
    async def main():
        async with bench(dies_at_once, answer_json, log=tmp_path / "log") as at:
            await at.client.post(CHAT, chat(), x_request_id="mine")

    run(main())
    workload = workload_of_log(tmp_path / "log")
    assert workload.names.requests == ("mine",)
    assert workload.prompt_tokens.tolist() == [31]  # the engine's count of the second attempt


def test_an_answer_of_the_first_attempt_says_nothing_of_attempts():
    async def main():
        async with bench(answer_json) as at:
            return (await at.client.post(CHAT, chat())).headers

    assert "x-pointsman-attempts" not in run(main())


@pytest.mark.parametrize(
    ("script", "status"), [(says_500, 500), (says_503, 503), (talks_nonsense, 502)]
)
def test_an_answer_of_the_replica_is_not_asked_for_again(script, status):
    async def main():
        async with bench(script, answer_json) as at:
            return (await at.client.post(CHAT, chat())).status, reached(at)

    assert run(main()) == (status, [1, 0])


@pytest.mark.parametrize(
    ("method", "path", "tried"),
    [
        ("GET", "/v1/files", [1, 1]),
        ("HEAD", "/v1/files", [1, 1]),
        ("POST", "/v1/files", [1, 0]),
        ("DELETE", "/v1/files/a", [1, 0]),
        ("PUT", "/v1/x", [1, 0]),
    ],
)
def test_only_what_may_be_done_twice_is_tried_again_after_it_was_sent(method, path, tried):
    async def main():
        async with bench(dies_at_once, answer_json) as at:
            response = await at.client.request(method, path)
            return response.status, reached(at)

    assert run(main()) == (200 if tried == [1, 1] else 502, tried)


def test_what_was_never_sent_is_tried_again_whatever_it_does():
    async def main():
        async with bench(answer_json, answer_json, probing=RARE) as at:
            await at.fakes[0].__aexit__()
            response = await at.client.post("/v1/files", b"x")
            return response.status, response.headers["x-pointsman-attempts"]

    assert run(main()) == (200, "2")


@pytest.mark.parametrize(("retries", "expected"), [(0, 1), (1, 2), (5, 3)])
def test_no_more_replicas_are_tried_than_retries_say_or_there_are(tmp_path, retries, expected):
    async def main():
        scripts = [dies_at_once] * 3
        async with bench(*scripts, retries=retries, log=tmp_path / "log") as at:
            response = await at.client.post(CHAT, chat())
            return response, reached(at)

    response, tried = run(main())
    assert (response.status, response.json["error"]["code"]) == (502, "replica_lost")
    assert (sum(tried), max(tried)) == (expected, 1)
    outcomes = read_log(tmp_path / "log").outcomes
    statuses = [outcomes[number].status for number in range(len(outcomes))]
    assert statuses == ["retried"] * (expected - 1) + ["error"]
    assert response.headers.get("x-pointsman-attempts", "1") == str(expected)


def test_the_orphan_is_aborted_before_another_replica_gets_the_request():
    """A replica that closes its sending side goes on generating until it sees its client leave."""
    events = []

    async def breaks_and_goes_on(request, wire):
        events.append("first begins")
        wire.writer.write_eof()
        await wire.reader.read(1)
        events.append("first sees its client leave")

    async def second(request, wire):
        events.append("second begins")
        await answer_json(request, wire)

    async def main():
        async with bench(breaks_and_goes_on, second) as at:
            response = await at.client.post(CHAT, chat())
            await until(lambda: len(events) == 3)
            return response.status

    assert run(main()) == 200
    assert events == ["first begins", "first sees its client leave", "second begins"]


def test_nothing_is_tried_again_once_the_client_has_seen_some_of_the_answer():
    async def main():
        seen = asyncio.Event()

        async def script(request, wire):
            await wire.send(CHUNKED)
            await seen.wait()
            wire.die()

        async with bench(script, answer_stream) as at:
            at.client.send("POST", CHAT, chat(stream=True))
            status, _ = await at.client.head()
            seen.set()
            rest = await at.client.reader.read()
            return status, b'"code":"replica_lost"' in rest, b"[DONE]" in rest, reached(at)

    assert run(main()) == (200, True, False, [1, 0])


def test_a_client_that_leaves_during_the_second_attempt_takes_it_with_it(tmp_path):
    async def main():
        async with bench(dies_at_once, never_answer, log=tmp_path / "log") as at:
            async with RawClient(at.port) as leaver:
                leaver.send("POST", CHAT, chat())
                await until(lambda: reached(at) == [1, 1])
            await until(lambda: at.router.dispatcher.ledger.in_flight == 0)
            await until(lambda: at.fakes[1].open_connections == 0)

    run(main())
    outcomes = read_log(tmp_path / "log").outcomes
    assert [outcomes[number].status for number in (0, 1)] == ["retried", "cancelled"]
