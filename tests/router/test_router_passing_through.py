"""What passes through the router, and what it adds."""

import asyncio
import json
import sys

import pytest

from tests.router.fake_replicas import (
    CHUNKED,
    DONE,
    PIECES,
    STREAM,
    FakeReplica,
    answer_json,
    answer_stream,
    chunk,
    sized,
)
from tests.router.raw_http import RawClient
from tests.router.routers import bench, chat, completion, routing, run, until

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


def test_a_request_reaches_the_replica_with_its_bytes_unchanged():
    body = b'{ "messages":[{"role":"user","content":"\\u00e9  "}], "odd" : [1.0e2] }'

    async def main():
        async with bench() as at:
            await at.client.post(f"{CHAT}?a=1&b", body, authorization="Bearer key", x_own="1")
            return at.fake.requests[0]

    seen = run(main())
    assert seen.body == body
    assert (seen.method, seen.path) == ("POST", f"{CHAT}?a=1&b")
    assert seen.headers["authorization"] == "Bearer key"
    assert seen.headers["x-own"] == "1"


def test_a_stream_reaches_the_client_with_its_bytes_unchanged():
    async def main():
        async with bench(answer_stream) as at:
            return await at.client.post(CHAT, chat(stream=True))

    response = run(main())
    assert response.body == STREAM
    assert response.is_whole


def test_pieces_of_a_stream_are_passed_on_as_they_come():
    async def main():
        next_piece = asyncio.Event()

        async def script(request, wire):
            await wire.send(CHUNKED)
            for piece in PIECES:
                await wire.send(chunk(piece))
                await next_piece.wait()
                next_piece.clear()
            await wire.send(chunk(DONE) + b"0\r\n\r\n")

        async with bench(script) as at:
            at.client.send("POST", CHAT, chat(stream=True))
            await at.client.head()
            seen = []
            async for piece in at.client.chunks():
                seen.append(piece)
                next_piece.set()
            return seen

    assert run(main()) == [*PIECES, DONE]


def test_pieces_that_come_in_one_read_leave_in_one_chunk():
    async def script(request, wire):
        await wire.send(CHUNKED + b"".join(chunk(p) for p in [*PIECES, DONE]) + b"0\r\n\r\n")

    async def main():
        async with bench(script) as at:
            at.client.send("POST", CHAT, chat(stream=True))
            await at.client.head()
            return [piece async for piece in at.client.chunks()]

    assert run(main()) == [b"".join([*PIECES, DONE])]


def test_every_answer_says_where_it_came_from_and_why():
    async def main():
        async with bench(policy="locality_aware") as at:
            first = await at.client.post(CHAT, chat(), x_session_id="s", x_request_id="mine")
            second = await at.client.post(CHAT, chat(), x_session_id="s")
            other = await at.client.request("GET", "/v1/x")
            return at.fake, first.headers, second.headers, other.headers

    fake, first, second, other = run(main())
    assert first["x-pointsman-replica"] == fake.url
    assert first["x-pointsman-policy"] == "locality_aware(slack_ms=5)"
    assert first["x-pointsman-reason"] == "queue_fallback"
    assert first["x-pointsman-expected-wait-ms"] == "0.000"
    assert first["x-pointsman-request-id"] == "mine"
    assert second["x-pointsman-reason"] == "sticky_session"
    assert len(second["x-pointsman-request-id"]) == 32
    assert other["x-pointsman-replica"] == fake.url
    sent = [request.headers["x-request-id"] for request in fake.requests]
    assert sent[:2] == ["mine", second["x-pointsman-request-id"]]


def test_connections_to_replicas_are_used_again():
    async def main():
        async with bench(answer_json, answer_stream) as at:
            for _ in range(100):
                assert (await at.client.post(CHAT, chat())).status == 200
            return [member.pool for member in at.router.membership.members], *at.fakes

    pools, one, two = run(main())
    assert [len(one.requests), len(two.requests)] == [50, 50]
    assert [one.connections, two.connections] == [1, 1]
    assert [pool.connects for pool in pools] == [1, 1]


def test_a_replica_that_closes_after_its_answer_gets_a_new_connection():
    async def script(request, wire):
        await wire.send(sized(b"{}").replace(b"\r\n", b"\r\nconnection: close\r\n", 1))
        wire.writer.close()

    async def main():
        async with bench(script) as at:
            answers = [await at.client.post(CHAT, chat()) for _ in range(3)]
            return at.fake.connections, [(answer.status, answer.body) for answer in answers]

    assert run(main()) == (3, [(200, b"{}")] * 3)


def test_an_answer_that_runs_to_the_end_of_the_connection_is_whole():
    async def script(request, wire):
        await wire.send(b"HTTP/1.0 200 OK\r\ncontent-type: text/plain\r\n\r\nall of it")
        wire.writer.close()

    async def main():
        async with bench(script) as at:
            return await at.client.request("GET", "/text")

    response = run(main())
    assert (response.body, response.is_whole) == (b"all of it", True)
    assert response.headers["transfer-encoding"] == "chunked"


def test_a_status_phrase_is_passed_on_however_it_is_cut():
    async def script(request, wire):
        await wire.send(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        answer = sized(b"{}", status=b"200 Fine By Me")
        for at in range(len(answer)):
            await wire.send(answer[at : at + 1])
            await asyncio.sleep(0)

    async def main():
        async with bench(script) as at:
            at.client.send("POST", CHAT, chat())
            return await at.client.reader.readuntil(b"\r\n")

    assert run(main()) == b"HTTP/1.1 200 Fine By Me\r\n"


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_answers_without_a_body_end_at_their_head(status):
    async def script(request, wire):
        await wire.send(b"HTTP/1.1 %b\r\n\r\n" % status)

    async def main():
        async with bench(script) as at:
            answers = [await at.client.request("DELETE", "/thing") for _ in range(2)]
            return at.fake.connections, [answer.status for answer in answers]

    assert run(main()) == (1, [int(status[:3])] * 2)


@pytest.mark.parametrize(("status", "length"), [(204, None), (304, "500")])
def test_the_length_of_a_body_that_is_not_there_stays_only_where_it_may(status, length):
    async def script(request, wire):
        await wire.send(b"HTTP/1.1 %d Whatever\r\ncontent-length: 500\r\n\r\n" % status)

    async def main():
        async with bench(script) as at:
            answers = [await at.client.request("GET", "/thing") for _ in range(2)]
            return at.fake.connections, [answer.headers for answer in answers]

    connections, headers = run(main())
    assert connections == 1
    assert [each.get("content-length") for each in headers] == [length] * 2
    assert all("transfer-encoding" not in each for each in headers)


def test_a_head_request_gets_headers_only():
    async def script(request, wire):
        await wire.send(b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n")

    async def main():
        async with bench(script) as at:
            answers = [await at.client.request("HEAD", "/thing") for _ in range(2)]
            return [answer.headers["content-length"] for answer in answers]

    assert run(main()) == ["500", "500"]


def test_interim_answers_are_swallowed():
    async def script(request, wire):
        await wire.send(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" + sized(b"{}"))

    async def main():
        async with bench(script) as at:
            return await at.client.post(CHAT, chat())

    response = run(main())
    assert response.status == 200
    assert "link" not in response.headers


def test_a_connections_own_headers_stay_on_it():
    async def script(request, wire):
        head = (
            b"HTTP/1.1 200 OK\r\nconnection: keep-alive, x-private\r\nx-private: 1\r\nx-kept: 1\r\n"
        )
        await wire.send(head + b"content-length: 2\r\n\r\n{}")

    async def main():
        async with bench(script) as at:
            response = await at.client.post(
                CHAT, chat(), connection="keep-alive, x-hop", x_hop="1", te="trailers"
            )
            return at.fake.requests[0].headers, response.headers

    sent, received = run(main())
    assert {"connection", "x-hop", "te"}.isdisjoint(sent)
    assert {"connection", "x-private"}.isdisjoint(received)
    assert received["x-kept"] == "1"


def test_the_path_of_a_replicas_url_goes_before_every_path():
    async def main():
        async with FakeReplica() as fake:
            urls = [f"{fake.url}/engine/"]
            async with routing(urls) as (_, port), RawClient(port) as client:
                await client.request("GET", "/v1/x")
            return fake.requests[0].path

    assert run(main()) == "/engine/v1/x"


def test_pipelined_requests_are_answered_in_order():
    async def script(request, wire):
        await wire.send(sized(request.headers["x-own"].encode()))

    async def main():
        async with bench(script) as at:
            for number in range(40):
                at.client.send("POST", CHAT, chat(), x_own=str(number))
            return [(await at.client.response()).body for _ in range(40)]

    assert run(main()) == [str(number).encode() for number in range(40)]


def test_a_client_that_asks_for_an_upgrade_gets_http_1_1_and_keeps_its_body():
    """As Java's client does with the first request of a connection."""
    wish = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2_settings": "AAA"}

    async def main():
        async with bench() as at:
            first = await at.client.post(CHAT, chat("first"), **wish)
            second = await at.client.post(CHAT, chat("second"))
            return [first.status, second.status], at.fake.requests

    statuses, requests = run(main())
    assert statuses == [200, 200]
    assert [json.loads(request.body) for request in requests] == [chat("first"), chat("second")]
    assert {"connection", "upgrade", "http2-settings"}.isdisjoint(requests[0].headers)


def test_any_number_of_pipelined_wishes_for_an_upgrade_is_declined():
    async def main():
        async with bench() as at:
            head = b"GET /x HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
            at.client.writer.write(head * 3_000)
            return [(await at.client.response()).status for _ in range(3_000)]

    assert run(main()) == [200] * 3_000


def test_a_chunked_request_reaches_the_replica_whole():
    body = json.dumps(chat("in pieces")).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n".encode()

    async def main():
        async with bench() as at:
            at.client.writer.write(head + chunk(body[:9]) + chunk(body[9:]) + b"0\r\n\r\n")
            status = (await at.client.response()).status
            return status, at.fake.requests[0].body

    assert run(main()) == (200, body)


def test_a_body_in_a_great_many_chunks_is_held_as_one():
    head = f"POST {CHAT} HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    body = json.dumps(chat("ab" * 50_000)).encode()
    pieces = [chunk(body[at : at + 2]) for at in range(0, len(body), 2)]

    async def main():
        async with bench() as at:
            at.client.writer.write(head + b"".join(pieces))
            await until(lambda: at.router.edge.connections)
            connection = next(iter(at.router.edge.connections))
            await until(lambda: len(connection._body) == len(body))
            held = sys.getsizeof(connection._body)
            at.client.writer.write(b"0\r\n\r\n")
            return held, (await at.client.response()).status, at.fake.requests[0].body

    held, status, received = run(main())
    assert held < 2 * len(body)
    assert (status, received) == (200, body)


def test_a_client_that_waits_for_100_continue_gets_it():
    body = json.dumps(chat()).encode()

    async def main():
        async with bench() as at:
            head = f"POST {CHAT} HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\n"
            at.client.writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode())
            interim, _ = await at.client.head()
            at.client.writer.write(body)
            return interim, (await at.client.response()).status, at.fake.requests[0].headers

    interim, status, headers = run(main())
    assert (interim, status) == (100, 200)
    assert "expect" not in headers


def test_100_continue_waits_until_the_answers_before_it_have_ended():
    body = json.dumps(chat()).encode()

    async def main():
        may_end = asyncio.Event()

        async def script(request, wire):
            if request.headers["x-own"] == "first":
                await wire.send(CHUNKED + chunk(PIECES[0]))
                await may_end.wait()
                await wire.send(chunk(DONE) + b"0\r\n\r\n")
            else:
                await answer_json(request, wire)

        async with bench(script) as at:
            at.client.send("POST", CHAT, chat(stream=True), x_own="first")
            await at.client.head()
            chunks = at.client.chunks()
            begun = await anext(chunks)
            head = f"POST {CHAT} HTTP/1.1\r\nhost: t\r\nx-own: second\r\nexpect: 100-continue\r\n"
            at.client.writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode())
            connection = next(iter(at.router.edge.connections))
            await until(lambda: connection._owes_continue)
            may_end.set()
            streamed = [begun, *[piece async for piece in chunks]]
            interim, _ = await at.client.head()
            at.client.writer.write(body)
            return streamed, interim, (await at.client.response()).status

    assert run(main()) == ([PIECES[0], DONE], 100, 200)


def test_a_wish_for_an_upgrade_and_for_100_continue_is_answered_once():
    head = (
        f"POST {CHAT} HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\nexpect: 100-continue\r\n"
    )
    body = json.dumps(chat()).encode()

    async def main():
        async with bench() as at:
            at.client.writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode())
            interim, _ = await at.client.head()
            at.client.writer.write(body)
            return interim, (await at.client.head())[0]

    assert run(main()) == (100, 200)


def test_a_client_of_http_1_0_gets_a_stream_that_ends_with_the_connection():
    async def main():
        async with bench(answer_stream) as at:
            body = json.dumps(chat()).encode()
            head = f"POST {CHAT} HTTP/1.0\r\ncontent-length: {len(body)}\r\n\r\n"
            at.client.writer.write(head.encode() + body)
            return await at.client.response()

    response = run(main())
    assert response.body == STREAM
    assert response.headers["connection"] == "close"


def test_a_client_that_says_close_is_closed_after_its_answer():
    async def main():
        async with bench() as at:
            response = await at.client.post(CHAT, chat(), connection="close")
            return response.headers["connection"], await at.client.reader.read()

    assert run(main()) == ("close", b"")


def test_a_slow_client_slows_the_replica_down():
    size = 64 << 20

    async def script(request, wire):
        await wire.send(sized(bytes(size)))

    async def main():
        async with bench(script) as at:
            at.client.send("POST", CHAT, chat())
            _, headers = await at.client.head()
            at.client.writer.transport.pause_reading()
            connection = next(iter(at.router.edge.connections))
            await until(lambda: connection._is_slow)
            held = connection._transport.get_write_buffer_size()
            at.client.writer.transport.resume_reading()
            body = await at.client.reader.readexactly(int(headers["content-length"]))
            again = await at.client.post(CHAT, chat())
            return held, len(body), again.status, at.fake.connections

    held, received, status, connections = run(main())
    assert held < size // 8
    assert (received, status, connections) == (size, 200, 1)


def test_health_is_answered_by_the_router():
    async def main():
        async with bench() as at:
            await at.client.post(COMPLETIONS, completion())
            return at.fake, await at.client.request("GET", "/health")

    fake, response = run(main())
    assert response.json == {
        "status": "ok",
        "policy": "round_robin",
        "held": 0,
        "held_bytes": 0,
        "refused": 0,
        "replicas": [
            {
                "id": 0,
                "url": fake.url,
                "state": "up",
                "in_flight": 0,
                "connects": 1,
                "weight": 1.0,
                "last_failure": None,
            }
        ],
    }
    assert len(fake.requests) == 1
