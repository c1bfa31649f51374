"""What a client is told, and what is accounted, when something goes wrong."""

import asyncio
import json
import socket
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from pointsman.bench.engines.processes import free_ports
from pointsman.dispatch.log_file import read_log
from pointsman.policies.catalogue import POLICIES
from pointsman.policies.policy import policy
from tests.router.fake_replicas import (
    CHUNKED,
    DONE,
    PIECES,
    answer_json,
    answer_stream,
    chunk,
    dies,
    never_answer,
    sized,
    stalls,
    stream_then,
)
from tests.router.raw_http import RawClient
from tests.router.routers import Bench, bench, chat, completion, routing, rule_by, run, until

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def in_flight(at: Bench) -> int:
    return at.router.dispatcher.ledger.in_flight


async def dies_at_once(request, wire):
    wire.die()


async def dies_within_the_head(request, wire):
    await wire.send(CHUNKED[:30])
    wire.die()


async def talks_nonsense(request, wire):
    await wire.send(b"SSH-2.0-OpenSSH\r\n\r\n")


async def dies_within_a_body(request, wire):
    await wire.send(sized(bytes(100))[:-60])
    wire.die()


async def dies_between_bytes_of_an_event(request, wire):
    await wire.send(CHUNKED + chunk(PIECES[0] + PIECES[1][:9]))
    wire.die()


async def says_500(request, wire):
    await wire.send(sized(b'{"error":{"message":"out of memory"}}', status=b"500 Oops"))


# Before the first byte of an answer.


@pytest.mark.parametrize("script", [dies_at_once, dies_within_the_head])
def test_a_replica_that_dies_before_its_answer_is_a_502_in_openais_shape(script):
    async def main():
        async with bench(script) as at:
            response = await at.client.post(CHAT, chat())
            again = await at.client.post(CHAT, chat())
            return at.fake, response, again, in_flight(at)

    fake, response, again, left = run(main())
    assert response.status == again.status == 502
    assert response.json == {
        "error": {
            "message": f"replica {fake.url} closed the connection",
            "type": "server_error",
            "param": None,
            "code": "replica_lost",
        }
    }
    assert response.headers["x-pointsman-replica"] == fake.url
    assert left == 0


def test_a_replica_that_does_not_speak_http_is_a_502():
    async def main():
        async with bench(talks_nonsense) as at:
            return await at.client.post(CHAT, chat())

    response = run(main())
    assert (response.status, response.json["error"]["code"]) == (502, "replica_protocol")


def test_a_replica_that_is_not_there_is_a_503_that_says_why_and_when_to_come_back():
    async def main():
        urls = [f"http://127.0.0.1:{free_port()}"]
        async with routing(urls) as (router, port), RawClient(port) as client:
            return urls[0], await client.post(CHAT, chat()), router.dispatcher.ledger.in_flight

    url, response, left = run(main())
    assert (response.status, response.json["error"]["code"]) == (503, "no_replica_ready")
    assert response.json["error"]["message"].endswith(
        f"; {url}: Connection refused; start one of them and ask again (/health says how each is)"
    )
    assert response.headers["retry-after"] == "1"
    assert left == 0


def test_three_replicas_that_are_not_there_are_named_and_the_others_counted():
    async def main():
        urls = [f"http://127.0.0.1:{port}" for port in free_ports(5)]
        async with routing(urls) as (router, port), RawClient(port) as client:
            members = router.membership.members
            await until(lambda: all(member.state == "unreachable" for member in members))
            return urls, (await client.post(CHAT, chat())).json["error"]["message"]

    urls, message = run(main())
    named = "".join(f"; {url}: Connection refused" for url in urls[:3])
    assert f"{named}; and 2 more; start one of them" in message


def test_an_error_of_the_replica_is_passed_on(tmp_path):
    async def main():
        async with bench(says_500, log=tmp_path / "log") as at:
            return await at.client.post(CHAT, chat())

    response = run(main())
    assert (response.status, response.json["error"]["message"]) == (500, "out of memory")
    outcome = read_log(tmp_path / "log").outcomes[0]
    assert (outcome.status, outcome.http_status) == ("error", 500)


def test_a_connection_that_the_replica_closed_while_idle_troubles_nobody():
    """llama.cpp closes after every stream, and says before that it will not."""

    async def script(request, wire):
        await answer_stream(request, wire)
        wire.writer.close()

    async def main():
        async with bench(script) as at:
            return [(await at.client.post(CHAT, chat())).status for _ in range(200)]

    assert run(main()) == [200] * 200


def test_a_request_is_sent_again_only_if_its_connection_was_used_before_and_nothing_came():
    async def main():
        served = []

        async def script(request, wire):
            served.append(request.headers["x-request-id"])
            if len(served) == 1:
                await answer_json(request, wire)
            else:
                wire.die()

        async with bench(script) as at:
            ids = ["first", "second", "third"]
            answers = [await at.client.post(CHAT, chat(), x_request_id=name) for name in ids]
            return [answer.status for answer in answers], served

    statuses, served = run(main())
    assert statuses == [200, 502, 502]
    assert served == ["first", "second", "second", "third"]


# Within an answer.


@pytest.mark.parametrize("pieces", range(9))
def test_a_stream_that_breaks_ends_in_an_error_event_without_done(tmp_path, pieces):
    async def main():
        async with bench(stream_then(pieces, dies), log=tmp_path / "log") as at:
            response = await at.client.post(CHAT, chat(stream=True))
            await until(lambda: in_flight(at) == 0)
            return response

    response = run(main())
    if pieces == 0 and response.status == 502:
        return  # the head and the death came in one read
    assert not response.is_whole
    assert b"[DONE]" not in response.body
    *whole, last = response.body.split(b"\n\n")[:-1]
    assert [event + b"\n\n" for event in whole] == PIECES[: len(whole)]
    assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "replica_lost"
    outcome = read_log(tmp_path / "log").outcomes[0]
    assert (outcome.status, outcome.error) == ("truncated", "replica_lost")


ENGINE_DIED = b'data: {"error": {"message": "the engine died", "code": 500}}\n\n'


async def says_that_its_engine_died(wire):
    """As vLLM 0.32 does, run: an error event, then [DONE], in a stream of 200."""
    for piece in (ENGINE_DIED, DONE):
        await wire.send(chunk(piece))
    await wire.send(b"0\r\n\r\n")


@pytest.mark.parametrize("pieces", [0, 2])
def test_a_stream_in_which_the_replica_tells_an_error_passes_unchanged_and_is_truncated(
    tmp_path, pieces
):
    async def main():
        script = stream_then(pieces, says_that_its_engine_died)
        async with bench(script, log=tmp_path / "log") as at:
            return await at.client.post(CHAT, chat(stream=True))

    response = run(main())
    assert response.is_whole
    assert response.body == b"".join([*PIECES[:pieces], ENGINE_DIED, DONE])
    outcome = read_log(tmp_path / "log").outcomes[0]
    assert (outcome.status, outcome.error) == ("truncated", "replica_error")


def test_a_stream_that_breaks_within_an_event_still_ends_in_an_error_event_of_its_own():
    async def main():
        async with bench(dies_between_bytes_of_an_event) as at:
            return await at.client.post(CHAT, chat(stream=True))

    response = run(main())
    *_, last, end = response.body.split(b"\n\n")
    assert end == b""
    assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "replica_lost"


def test_a_stream_without_a_length_has_to_say_done(tmp_path):
    """Without chunks or a length, a replica's death looks like the end of its answer."""

    def unsized(*pieces: bytes):
        async def script(request, wire):
            head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
            await wire.send(head + b"".join(pieces))
            wire.writer.close()

        return script

    async def main():
        async with bench(unsized(*PIECES), unsized(*PIECES, DONE), log=tmp_path / "log") as at:
            await at.client.post(CHAT, chat(stream=True))
            async with RawClient(at.port) as another:
                whole = await another.post(CHAT, chat(stream=True))
            return whole.is_whole

    assert run(main())
    outcomes = read_log(tmp_path / "log").outcomes
    assert [outcomes[k].status for k in (0, 1)] == ["truncated", "ok"]


def test_a_body_that_breaks_is_not_passed_off_as_whole(tmp_path):
    async def main():
        async with bench(dies_within_a_body, log=tmp_path / "log") as at:
            return await at.client.post(CHAT, chat())

    response = run(main())
    assert (response.is_whole, len(response.body)) == (False, 40)
    assert read_log(tmp_path / "log").outcomes[0].status == "truncated"


# The client leaves.


@pytest.mark.parametrize("script", [never_answer, *(stream_then(n, stalls) for n in (0, 1, 8))])
def test_a_client_that_leaves_takes_its_request_to_the_replica_with_it(tmp_path, script):
    async def main():
        async with bench(script, log=tmp_path / "log") as at:
            async with RawClient(at.port) as leaver:
                leaver.send("POST", CHAT, chat())
                await until(lambda: len(at.fake.requests) == 1)
                assert in_flight(at) == 1
            await until(lambda: in_flight(at) == 0)
            await until(lambda: at.fake.open_connections == 0)

    run(main())
    assert read_log(tmp_path / "log").outcomes[0].status == "cancelled"


def test_a_client_that_closes_its_sending_side_counts_as_one_that_left():
    async def main():
        async with bench(never_answer) as at:
            at.client.send("POST", CHAT, chat())
            await until(lambda: len(at.fake.requests) == 1)
            at.client.writer.write_eof()
            await until(lambda: in_flight(at) == 0)
            return await at.client.reader.read()

    assert run(main()) == b""


def test_a_client_that_leaves_while_the_replica_is_being_reached_is_accounted_too():
    async def main():
        with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
            # A listener that accepts nobody: beyond its backlog connects hang.
            port = full.getsockname()[1]
            fillers = [socket.socket() for _ in range(4)]
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.1", port))
            async with routing([f"http://127.0.0.1:{port}"]) as (router, own):
                ledger = router.dispatcher.ledger
                async with RawClient(own) as leaver:
                    leaver.send("POST", CHAT, chat())
                    await until(lambda: ledger.in_flight == 1)
                await until(lambda: ledger.in_flight == 0)
            for filler in fillers:
                filler.close()

    run(main())


def test_accounts_come_back_to_zero_wherever_clients_and_replicas_break_off():
    """Clients leave after any number of bytes; replicas die after any number of pieces."""

    async def leave_after(at: Bench, received_bytes: int, path: str) -> None:
        async with RawClient(at.port) as leaver:
            body = chat(stream=True) if path == CHAT else completion()
            leaver.send("POST", path, body, connection="close")
            async with asyncio.timeout(10):
                try:
                    await leaver.reader.readexactly(received_bytes)
                except asyncio.IncompleteReadError:
                    return

    async def main():
        scripts = [
            answer_stream,
            dies_at_once,
            dies_within_a_body,
            *(stream_then(n, dies) for n in range(5)),
            *(stream_then(n, stalls) for n in range(6, 9)),
        ]
        async with bench(*scripts, policy="random") as at:
            leavers = (
                leave_after(at, received_bytes, path)
                for received_bytes in range(0, 480, 8)  # less than what a stalling stream sends
                for path in (CHAT, COMPLETIONS, "/v1/embeddings")
            )
            await asyncio.gather(*leavers)
            await until(lambda: in_flight(at) == 0)
            at.router.dispatcher.ledger.check_invariants()
            return sum(len(fake.requests) for fake in at.fakes)

    assert run(main()) > 0


def test_unknown_paths_are_accounted_as_well():
    async def main():
        async with bench(never_answer, never_answer, policy="least_requests") as at:
            async with RawClient(at.port) as one, RawClient(at.port) as two:
                one.send("GET", "/v1/whatever")
                two.send("PUT", "/x", b"--")
                await until(lambda: sum(len(fake.requests) for fake in at.fakes) == 2)
                busy = at.router.dispatcher.ledger.requests.tolist()
            await until(lambda: in_flight(at) == 0)
            return busy

    assert run(main()) == [1, 1]


@pytest.mark.parametrize("policy", ["queue_aware", "locality_aware"])
def test_unknown_paths_spread_by_the_work_that_their_bodies_promise(policy):
    async def main():
        async with (
            bench(never_answer, never_answer, policy=policy) as at,
            AsyncExitStack() as open_,
        ):
            for _ in range(6):
                client = await open_.enter_async_context(RawClient(at.port))
                client.send("POST", "/v1/embeddings", bytes(400_000))
            await until(lambda: in_flight(at) == 6)
            return at.router.dispatcher.ledger.requests.tolist()

    assert run(main()) == [3, 3]


# Requests that are wrong.


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (CHAT, b"{", "Input data was truncated"),
        (CHAT, b"", "Input data was truncated"),
        (CHAT, b"\xff\xfe", "JSON is malformed"),
        (CHAT, {"model": "m"}, "missing required field `messages`"),
        (CHAT, {"messages": "hi"}, "Expected `array`, got `str` - at `$.messages`"),
        (CHAT, {"messages": [{"role": "user", "content": 5}]}, "at `$.messages[0].content`"),
        (CHAT, {"messages": [{"role": "user", "content": [7]}]}, "a part of a message"),
        (CHAT, chat(max_tokens="many"), "at `$.max_tokens`"),
        (CHAT, chat(max_tokens=10**400), "at `$.max_tokens`"),
        (COMPLETIONS, {"model": "m"}, "missing required field `prompt`"),
        (COMPLETIONS, completion([1, -2]), "at `$.prompt[1]`"),
    ],
)
def test_a_body_that_cannot_be_read_is_a_400_and_reaches_nobody(path, body, message):
    async def main():
        async with bench() as at:
            return await at.client.post(path, body), len(at.fake.requests)

    response, reached = run(main())
    assert (response.status, reached) == (400, 0)
    assert response.json["error"]["type"] == "invalid_request_error"
    assert message in response.json["error"]["message"]


DEEP = b"[" * 20_000 + b"]" * 20_000
MESSAGE = b'{"messages":[{"role":"user","content":'


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, b'{"messages":[],"tools":%b}' % DEEP),
        (CHAT, b'{"messages":[],"unheard_of":%b}' % DEEP),
        (CHAT, MESSAGE + b'[{"type":"text","text":%b}]}]}' % DEEP),
        (CHAT, MESSAGE + b"%b}]}" % DEEP),
        (COMPLETIONS, b'{"prompt":%b}' % DEEP),
    ],
)
def test_a_body_nested_without_end_is_a_400_and_troubles_nobody(path, body):
    async def main():
        async with bench() as at:
            bad = await at.client.post(path, body)
            return bad.status, (await at.client.post(CHAT, chat())).status, at.complaints

    assert run(main()) == (400, 200, [])


@pytest.mark.parametrize("target", [b"http://[::1/x", b"http://::1]/"])
def test_a_target_that_is_no_url_is_a_400(target):
    async def main():
        async with bench() as at:
            at.client.writer.write(b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n" % target)
            response = await at.client.response()
            return response.status, await at.client.reader.read(), at.complaints

    assert run(main()) == (400, b"", [])


@pytest.mark.parametrize("request_id", ["x" * 129, "a b", "\u00e9"])
def test_a_request_id_that_fits_no_header_is_a_400(request_id):
    async def main():
        async with bench() as at:
            return (await at.client.post(CHAT, chat(), x_request_id=request_id)).status

    assert run(main()) == 400


def test_what_is_not_http_is_a_400():
    async def main():
        async with bench() as at:
            at.client.writer.write(b"GARBAGE\r\n\r\n")
            response = await at.client.response()
            return response.status, response.json["error"]["code"], await at.client.reader.read()

    assert run(main()) == (400, "not_http", b"")


def test_a_tunnel_is_refused():
    async def main():
        async with bench() as at:
            at.client.writer.write(b"CONNECT example.org:443 HTTP/1.1\r\nhost: x\r\n\r\n")
            return (await at.client.response()).status

    assert run(main()) == 405


def test_a_body_over_the_limit_is_a_413_before_it_is_sent():
    async def main():
        async with bench() as at:
            head = f"POST {CHAT} HTTP/1.1\r\nhost: t\r\ncontent-length: {(64 << 20) + 1}\r\n\r\n"
            at.client.writer.write(head.encode())
            response = await at.client.response()
            return response.status, response.json["error"]["code"], len(at.fake.requests)

    assert run(main()) == (413, "body_too_large", 0)


def test_a_chunked_body_over_the_limit_is_a_413_while_it_is_being_sent():
    async def main():
        async with bench() as at:
            head = f"POST {CHAT} HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n"
            at.client.writer.write(head.encode())
            for _ in range(66):
                at.client.writer.write(chunk(bytes(1 << 20)))
                await at.client.writer.drain()
            return (await at.client.response()).status, len(at.fake.requests)

    assert run(main()) == (413, 0)


def test_a_body_at_the_limit_passes():
    async def main():
        async with bench() as at:
            response = await at.client.post("/v1/audio", bytes(64 << 20))
            return response.status, len(at.fake.requests[0].body)

    assert run(main()) == (200, 64 << 20)


def test_a_head_over_the_limit_is_a_431():
    async def main():
        async with bench() as at:
            return (await at.client.post(CHAT, chat(), x_own="x" * 70_000)).status

    assert run(main()) == 431


CODED = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1"
ENDLESS = {
    "target": (b"GET /", b"a"),
    "header": (b"GET / HTTP/1.1\r\nx: ", b"a"),
    "header name": (b"GET / HTTP/1.1\r\nx", b"a"),
    "headers": (b"GET / HTTP/1.1\r\n", b"a:\r\n"),
    "trailer": (CODED + b"\r\na\r\n0\r\nx: ", b"a"),
    "trailers": (CODED + b"\r\na\r\n0\r\n", b"a:\r\n"),
    "chunk extension": (CODED + b";", b"a"),
}


@pytest.mark.parametrize(("begin", "more"), ENDLESS.values(), ids=ENDLESS.keys())
def test_a_head_or_a_trailer_without_end_is_a_431_while_it_is_being_sent(begin, more):
    async def main():
        async with bench() as at:
            at.client.writer.write(begin)
            for _ in range(32):
                at.client.writer.write(more * 10_000)
                await at.client.writer.drain()
            return (await at.client.response()).status, len(at.fake.requests)

    assert run(main()) == (431, 0)


def test_heads_within_the_limit_pass_however_many_come_in_one_read_and_however_they_are_cut():
    async def main():
        async with bench() as at:
            request = b"GET /x HTTP/1.1\r\nx-own: %b\r\n\r\n" % (b"a" * 40_000)
            requests = request * 8
            for start in range(0, len(requests), 30_000):
                at.client.writer.write(requests[start : start + 30_000])
                await at.client.writer.drain()
            return [(await at.client.response()).status for _ in range(8)]

    assert run(main()) == [200] * 8


@pytest.mark.parametrize(
    "begin",
    [b"HTTP/1.1 200 ", b"HTTP/1.1 200 OK\r\nx: ", b"HTTP/1.1 200 OK\r\nx"],
    ids=["phrase", "header", "header name"],
)
def test_a_head_of_a_replica_without_end_is_a_502(begin):
    async def script(request, wire):
        await wire.send(begin)
        for _ in range(320):
            await wire.send(b"a" * 10_000)

    async def main():
        async with bench(script) as at:
            return await at.client.post(CHAT, chat()), in_flight(at)

    response, left = run(main())
    assert (response.status, response.json["error"]["code"]) == (502, "replica_protocol")
    assert left == 0


def test_a_whole_head_of_a_replica_over_the_limit_is_a_502():
    async def script(request, wire):
        await wire.send(sized(b"{}").replace(b"\r\n", b"\r\n" + b"x: 12345\r\n" * 7_000, 1))

    async def main():
        async with bench(script) as at:
            return (await at.client.post(CHAT, chat())).status

    assert run(main()) == 502


def test_a_trailer_of_a_replica_without_end_ends_its_answer(tmp_path):
    async def script(request, wire):
        await wire.send(CHUNKED + chunk(PIECES[0]) + b"0\r\nx: ")
        for _ in range(320):
            await wire.send(b"a" * 10_000)

    async def main():
        async with bench(script, log=tmp_path / "log") as at:
            response = await at.client.post(CHAT, chat(stream=True))
            await until(lambda: in_flight(at) == 0)
            return response.is_whole

    assert not run(main())
    assert read_log(tmp_path / "log").outcomes[0].error == "replica_protocol"


def test_a_policy_that_is_broken_is_a_500_and_the_router_goes_on():
    @policy(rule="-", source="-", reasons=("-",))
    def late_breaker(request, view, parameters):
        return -1 if request.sequence == 1 else 0, 0

    async def main():
        async with bench() as at:
            rule_by(at.router, late_breaker)
            statuses = [(await at.client.post(CHAT, chat())).status for _ in range(2)]
            return statuses, in_flight(at), at.complaints

    statuses, left, [complaint] = run(main())
    assert statuses == [200, 500]
    assert left == 0
    assert "policy late_breaker chose candidate -1" in complaint


def test_a_policy_that_raises_is_a_500_and_leaves_no_gap_in_the_log(tmp_path):
    @policy(rule="-", source="-", reasons=("-",))
    def raising(request, view, parameters):
        if request.prompt_tokens > 100:
            raise ValueError
        return 0, 0

    async def main():
        async with bench(log=tmp_path / "log") as at:
            rule_by(at.router, raising)
            asked = [chat(), chat("x" * 999), chat()]
            return [(await at.client.post(CHAT, body)).status for body in asked], in_flight(at)

    assert run(main()) == ([200, 500, 200], 0)
    assert [choice.sequence for choice in read_log(tmp_path / "log").choices] == [0, 1]


def test_an_answer_whose_headers_cannot_be_made_gives_its_place_back():
    unspeakable = replace(POLICIES["round_robin"], reasons=("\ud800",))

    async def main():
        async with bench() as at:
            rule_by(at.router, unspeakable)
            return (await at.client.post(CHAT, chat())).status, in_flight(at), at.complaints

    status, left, [complaint] = run(main())
    assert (status, left) == (500, 0)
    assert "UnicodeEncodeError" in complaint


def test_an_answer_that_nobody_asked_for_is_not_given_to_the_next_one():
    async def script(request, wire):
        await wire.send(sized(b'"mine"') + sized(b'"a stray one"'))

    async def main():
        async with bench(script) as at:
            bodies = [(await at.client.post(CHAT, chat())).body for _ in range(3)]
            return bodies

    assert run(main()) == [b'"mine"'] * 3
