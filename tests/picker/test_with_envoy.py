"""A real Envoy, configured by ``pointsman envoy-config``, asks ``pointsman pick``."""

import asyncio
import json
import signal

import pytest

pytest.importorskip("grpc")

from pointsman.dispatch.log_file import read_log
from pointsman.replay.replay import replay_same
from tests.picker.envoy_process import picking, standing
from tests.router.fake_replicas import (
    CHUNKED,
    PIECES,
    STREAM,
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
from tests.router.routers import chat, completion, run, until

pytestmark = pytest.mark.envoy

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
BODIES = ("--answers", "bodies")
MODES = [(), ("--answers", "none"), BODIES, ("--duplex",), ("--duplex", *BODIES)]
SEEING = [mode for mode in MODES if "none" not in mode]  # those who served
HEADER = "x-gateway-destination-endpoint"


def stood(folder, main, *scripts, **given):
    """Run ``main(stand)``; the log that it left."""

    async def whole():
        async with standing(folder, *scripts, **given) as stand:
            found = await main(stand)
            await until(lambda: stand.is_idle)
            return found

    return run(whole()), read_log(folder / "log")


def endings(log):
    return [(each.status, each.http_status, each.error) for each in log.outcomes.values()]


@pytest.mark.parametrize("mode", MODES, ids=" ".join)
def test_the_policy_is_honoured_and_the_log_replays(tmp_path, mode):
    async def main(stand):
        answers = [await stand.post(COMPLETIONS, completion(n * "x")) for n in range(1, 9)]
        return answers, [fake.url for fake in stand.fakes], [f.requests for f in stand.fakes]

    scripts = answer_json, answer_json
    (answers, urls, requests), log = stood(tmp_path, main, *scripts, config=mode)
    if "none" not in mode:
        assert [each.headers["x-pointsman-replica"] for each in answers] == urls * 4
    sent = [[json.loads(each.body)["prompt"] for each in of_one] for of_one in requests]
    assert sent == [[n * "x" for n in (1, 3, 5, 7)], [n * "x" for n in (2, 4, 6, 8)]]
    assert endings(log) == [("ok", None if "none" in mode else 200, None)] * 8
    assert replay_same(log).differences == []


@pytest.mark.parametrize("mode", MODES, ids=" ".join)
def test_large_bodies_and_streams_pass_unchanged(tmp_path, mode):
    asked = chat("long " * 300_000, stream=True)

    async def main(stand):
        answer = await stand.post(CHAT, asked)
        return answer, stand.fakes[0].requests[0].body

    (answer, body), log = stood(tmp_path, main, answer_stream, config=mode)
    assert (answer.status, answer.body, answer.is_whole) == (200, STREAM, True)
    assert json.loads(body) == asked
    (outcome,) = log.outcomes.values()
    reads = "bodies" in mode
    assert outcome.usage.output_tokens == (8 if reads else None)
    assert (outcome.first_token_ms is not None) == reads


def test_a_session_goes_by_its_header(tmp_path):
    async def main(stand):
        answers = [
            await stand.post(COMPLETIONS, completion(), x_session_id=session)
            for session in "abcdefgh" * 3
        ]
        return [each.headers["x-pointsman-replica"] for each in answers]

    flags = ("--policy", "session_affinity")
    homes, _ = stood(tmp_path, main, answer_json, answer_json, pick=flags)
    assert homes[:8] == homes[8:16] == homes[16:]
    assert len(set(homes)) == 2


@pytest.mark.parametrize("mode", SEEING, ids=" ".join)
def test_a_dead_replica_costs_no_error_and_is_found_out(tmp_path, mode):
    async def main(stand):
        await stand.fakes[0].__aexit__()
        answers = [await stand.post(COMPLETIONS, completion()) for _ in range(6)]
        return [each.status for each in answers], stand.fakes[1].url, answers[0].headers

    (statuses, url, headers), log = stood(tmp_path, main, answer_json, answer_json, config=mode)
    assert statuses == [200] * 6
    assert headers["x-pointsman-replica"] == url
    assert endings(log)[0] == ("retried", None, "served_elsewhere")
    # Once it has been looked at nobody is sent there: how soon that is, is a matter of time.
    assert 1 <= endings(log).count(endings(log)[0]) <= 2
    assert endings(log).count(("ok", 200, None)) == 6
    assert replay_same(log).differences == []


def test_all_dead_is_an_error_of_envoys_that_is_counted(tmp_path):
    async def main(stand):
        for fake in stand.fakes:
            await fake.__aexit__()
        return (await stand.post(COMPLETIONS, completion())).status

    status, log = stood(tmp_path, main, answer_json, answer_json)
    assert status == 503
    assert endings(log)[-1] == ("error", 503, "replica_unreachable")


def test_none_ready_full_unknown_and_unreadable_are_answered_as_the_protocol_says(tmp_path):
    async def main(stand):
        async with RawClient(stand.port) as waits:
            waits.send("POST", COMPLETIONS, completion())
            await until(lambda: stand.fakes[0].requests)
            full = await stand.post(COMPLETIONS, completion())
        await until(lambda: stand.is_idle)
        broken = await stand.post(COMPLETIONS, b"{")
        return full, broken

    (full, broken), log = stood(tmp_path, main, never_answer, pick=("--max-in-flight", "1"))
    assert (full.status, full.json["error"]["code"]) == (429, "overloaded")
    assert full.headers["content-type"] == "application/json"
    assert full.headers["retry-after"] == "1"
    assert (broken.status, broken.json["error"]["code"]) == (400, "invalid_body")
    assert endings(log) == [("cancelled", None, None)]


@pytest.mark.parametrize("mode", [(), ("--duplex",)], ids=" ".join)
def test_a_body_above_the_limit_is_a_413(tmp_path, mode):
    async def main(stand):
        return await stand.post(COMPLETIONS, completion("x" * (1 << 20)))

    limit = ("--max-body-mb", "1")
    answer, log = stood(tmp_path, main, answer_json, pick=limit, config=(*mode, *limit))
    assert answer.status == 413
    assert log.choices == []


def test_a_client_cannot_choose_its_replica_by_a_header(tmp_path):
    async def main(stand):
        here = stand.fakes[0].url.removeprefix("http://")
        async with RawClient(stand.port) as client:
            for _ in range(4):
                client.writer.write(
                    b"POST %b HTTP/1.1\r\nhost: x\r\n%b: %b\r\ncontent-length: 17\r\n\r\n"
                    b'{"prompt": "one"}' % (COMPLETIONS.encode(), HEADER.encode(), here.encode())
                )
                await client.response()
        return [len(fake.requests) for fake in stand.fakes]

    counts, _ = stood(tmp_path, main, answer_json, answer_json)
    assert counts == [2, 2]


def test_the_subset_of_a_gateway_binds(tmp_path):
    """Another filter of Envoy's says what the subset is, as a gateway does."""
    only: list[str] = []

    def change(config):
        listener = config["static_resources"]["listeners"][0]
        manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
        members = config["static_resources"]["clusters"][0]["load_assignment"]["endpoints"][0]
        address = members["lb_endpoints"][1]["endpoint"]["address"]["socket_address"]
        only.append(f"{address['address']}:{address['port_value']}")
        namespace, key = "envoy.lb.subset_hint", f"{HEADER}-subset"
        api = "type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config"
        hint = {"metadata_namespace": namespace, "value": {key: only}}
        ours = {"@type": api, "metadata": [hint]}
        filters = manager["http_filters"]
        forwarded = filters[0]["typed_config"]["metadata_options"]["forwarding_namespaces"]
        forwarded["untyped"].append(namespace)
        filters.insert(0, {"name": "hint", "typed_config": ours})

    async def main(stand):
        statuses = [(await stand.post(COMPLETIONS, completion())).status for _ in range(4)]
        return statuses, [len(fake.requests) for fake in stand.fakes]

    (statuses, counts), _ = stood(tmp_path, main, answer_json, answer_json, change=change)
    assert statuses == [200] * 4
    assert counts == [0, 4]


# Streams that do not end as they should.


@pytest.mark.parametrize(
    ("mode", "word"),
    [((), "ok"), (BODIES, "truncated")],
    ids=["headers", "bodies"],
)
def test_a_client_that_leaves_is_gone_at_the_replica_and_from_the_account(tmp_path, mode, word):
    async def main(stand):
        async with RawClient(stand.port) as client:
            client.send("POST", COMPLETIONS, completion(stream=True))
            await client.head()
            assert stand.in_flight == [1]
        await until(lambda: stand.fakes[0].open_connections == 0)

    _, log = stood(tmp_path, main, stream_then(2, stalls), config=mode)
    assert endings(log) == [(word, 200, None)]


def test_a_client_that_leaves_before_the_answer_is_cancelled(tmp_path):
    async def main(stand):
        async with RawClient(stand.port) as client:
            client.send("POST", COMPLETIONS, completion())
            await until(lambda: stand.fakes[0].requests)
        await until(lambda: stand.fakes[0].open_connections == 0)

    _, log = stood(tmp_path, main, never_answer)
    assert endings(log) == [("cancelled", None, None)]


@pytest.mark.parametrize(
    ("mode", "word"),
    [((), "ok"), (BODIES, "truncated")],
    ids=["headers", "bodies"],
)
def test_a_replica_that_dies_within_its_answer_leaves_no_account_open(tmp_path, mode, word):
    has_begun = asyncio.Event()

    async def dies_later(wire):
        await has_begun.wait()
        wire.die()

    async def main(stand):
        async with RawClient(stand.port) as client:
            client.send("POST", COMPLETIONS, completion(stream=True))
            _, headers = await client.head()
            has_begun.set()
            return await client._body(headers)

    (_, is_whole), log = stood(tmp_path, main, stream_then(3, dies_later), config=mode)
    assert not is_whole
    assert endings(log) == [(word, 200, None)]


@pytest.mark.parametrize("mode", [(), BODIES], ids=["headers", "bodies"])
def test_every_request_of_a_crowd_is_accounted_for_exactly_once(tmp_path, mode):
    """Whole answers, errors, streams that stop, and clients that leave, all at a time."""

    async def varied(request, wire):
        n = int(json.loads(request.body)["prompt"])
        if n % 5 == 1:
            await wire.send(sized(b"{}", status=b"500 Internal Server Error"))
        elif n % 5 == 2:
            await stream_then(n % 8, dies)(request, wire)
        elif n % 5 == 3:
            await stream_then(n % 8, stalls)(request, wire)
        else:
            await answer_stream(request, wire)

    async def one(stand, n):
        async with RawClient(stand.port) as client:
            client.send("POST", COMPLETIONS, completion(str(n), stream=True))
            if n % 5 == 3:
                await client.head()
            else:
                await client.response()

    async def main(stand):
        for first in range(0, 200, 40):
            await asyncio.gather(*(one(stand, n) for n in range(first, first + 40)))

    flags = ("--set-aside-after", "0")
    _, log = stood(tmp_path, main, varied, varied, varied, pick=flags, config=mode)
    assert sorted(log.outcomes) == [choice.sequence for choice in log.choices]
    final = [word for word in endings(log) if word[0] != "retried"]
    assert len(final) == 200
    assert sum(word[:2] == ("error", 500) for word in final) == 40


# The picker goes away.


def test_without_the_picker_requests_are_served_all_the_same_where_it_fails_open(tmp_path):
    async def main():
        async with standing(tmp_path, answer_json, answer_json, as_process=True) as stand:
            stand.picker.process.kill()
            stand.picker.process.wait()
            answers = [await stand.post(COMPLETIONS, completion()) for _ in range(6)]
            flags = [w for fake in stand.fakes for w in ("--replica", fake.url)]
            with picking(*flags, "--policy", "round_robin", port=stand.picker.port):
                # Envoy takes up a picker that is back when it next tries.
                async with asyncio.timeout(30):
                    while (
                        "x-pointsman-replica"
                        not in (await stand.post(COMPLETIONS, completion())).headers
                    ):
                        await asyncio.sleep(0.1)
            return answers

    answers = run(main())
    assert [each.status for each in answers] == [200] * 6
    assert not any("x-pointsman-replica" in each.headers for each in answers)


def test_without_the_picker_requests_are_refused_where_it_fails_close(tmp_path):
    async def main():
        mode = ("--failure-mode", "FailClose")
        async with standing(tmp_path, answer_json, config=mode, as_process=True) as stand:
            stand.picker.process.kill()
            stand.picker.process.wait()
            answer = await stand.post(COMPLETIONS, completion())
            return answer.status, len(stand.fakes[0].requests)

    assert run(main()) == (500, 0)


@pytest.mark.parametrize(("mode", "is_whole"), [("FailOpen", True), ("FailClose", False)])
def test_a_stream_that_runs_outlives_its_picker_only_where_it_fails_open(tmp_path, mode, is_whole):
    async def main():
        may_go_on = asyncio.Event()

        async def script(request, wire):
            await wire.send(CHUNKED + chunk(PIECES[0]))
            await may_go_on.wait()
            await wire.send(chunk(PIECES[1]) + b"0\r\n\r\n")

        flags = ("--failure-mode", mode)
        async with (
            standing(tmp_path, script, config=flags, as_process=True) as stand,
            RawClient(stand.port) as client,
        ):
            client.send("POST", COMPLETIONS, completion(stream=True))
            await client.head()
            stand.picker.process.kill()
            stand.picker.process.wait()
            await asyncio.sleep(0.2)  # for Envoy to hear of it, if it is to act on it
            may_go_on.set()
            _, whole = await client._body({"transfer-encoding": "chunked"})
            return whole

    assert run(main()) is is_whole


def test_a_picker_that_hangs_holds_requests_up_for_as_long_as_envoy_waits(tmp_path):
    flags = ("--message-timeout-ms", "300")

    async def main():
        async with standing(tmp_path, answer_json, config=flags, as_process=True) as stand:
            stand.picker.process.send_signal(signal.SIGSTOP)
            return (await stand.post(COMPLETIONS, completion())).status

    assert run(main()) == 200
