"""Requests over pairs of stand-ins, protocol by protocol."""

import asyncio
import json

import pytest

from pointsman.dispatch.log_file import read_log
from pointsman.router.handoff.sglang import new_room
from pointsman.router.membership import MembershipError
from pointsman.router.settings import Holding, Timeouts
from pointsman.router.upstream import replica_address
from tests.router.fake_replicas import (
    CHUNKED,
    DONE,
    answer_json,
    answer_stream,
    chunk,
    never_answer,
)
from tests.router.pair_stand_ins import (
    BODY,
    CHAT,
    ONE_TOKEN,
    PARAMETERS,
    Rooms,
    answers,
    asked,
    nixl_prefill,
    pair_bench,
)
from tests.router.raw_http import RawClient
from tests.router.routers import chat, completion, run, until

# NIXL.


def test_nixl_asks_for_one_token_and_hands_the_parameters_on_unchanged():
    answer, prefill, decode, failures, handoffs = asked("nixl", nixl_prefill, answer_stream)
    assert answer.status == 200
    assert answer.body.endswith(b"data: [DONE]\n\n")
    wanted = {
        "do_remote_decode": True,
        "do_remote_prefill": False,
        **dict.fromkeys(("remote_engine_id", "remote_block_ids", "remote_host", "remote_port")),
    }
    assert prefill == [
        {
            "model": "m",
            "messages": BODY["messages"],
            "top_p": 0.1,
            "max_tokens": 1,
            "max_completion_tokens": 1,
            "stream": False,
            "kv_transfer_params": wanted,
        }
    ]
    assert decode == [{**BODY, "kv_transfer_params": PARAMETERS}]
    assert (failures, handoffs) == ({}, 1)


def test_values_of_the_body_pass_byte_for_byte():
    raw = b'{"messages":[{"role":"user","content":"\\u0041"}],"top_p":0.10,"seed":%d}' % 10**23

    async def main():
        async with pair_bench("nixl", [nixl_prefill], [answer_json]) as at:
            await at.client.post(CHAT, raw)
            return at.prefill.requests[0].body, at.decode.requests[0].body

    for body in run(main()):
        assert b'"seed":1' + b"0" * 23 in body
        assert b'"content":"\\u0041"' in body
        assert b'"top_p":0.10' in body


def test_a_client_cannot_say_where_a_cache_is_fetched():
    body = chat("Hello", kv_transfer_params={"remote_host": "evil"})
    _, prefill, decode, _, _ = asked("nixl", nixl_prefill, answer_json, body)
    assert b"evil" not in json.dumps([prefill, decode]).encode()
    failing = answers({}, b"500 Oops")
    _, _, decode, failures, _ = asked("nixl", failing, answer_json, body)
    assert failures == {"prefill_error": 1}
    assert "kv_transfer_params" not in decode[0]


def test_both_get_the_same_request_id_and_the_answer_names_both():
    async def main():
        async with pair_bench("nixl", [nixl_prefill], [answer_json]) as at:
            said = {"x_request_id": "r-1", "authorization": "Bearer k"}
            answer = await at.client.post(CHAT, chat(), **said)
            ids = [each.requests[0].headers["x-request-id"] for each in (at.prefill, at.decode)]
            keys = [each.requests[0].headers["authorization"] for each in (at.prefill, at.decode)]
            named = answer.headers["x-pointsman-prefill"], answer.headers["x-pointsman-replica"]
            return ids, keys, named == (at.prefill.url, at.decode.url)

    assert run(main()) == (["r-1"] * 2, ["Bearer k"] * 2, True)


@pytest.mark.parametrize("parameters", [None, {}, {"kv_transfer_params": None}])
def test_an_answer_without_parameters_falls_back(parameters):
    prefill = answers({**ONE_TOKEN, **(parameters or {})})
    answer, _, decode, failures, handoffs = asked("nixl", prefill, answer_stream)
    assert answer.status == 200
    assert decode == [BODY]
    assert (failures, handoffs) == ({"no_parameters": 1}, 0)


@pytest.mark.parametrize("body", [chat(n=2), completion(["a", "b"])])
def test_what_has_no_one_cache_is_not_handed_off(body):
    path = CHAT if "messages" in body else "/v1/completions"
    answer, prefill, decode, failures, _ = asked("nixl", nixl_prefill, answer_json, body, path)
    assert (answer.status, prefill, decode) == (200, [], [body])
    assert failures == {"several_answers": 1}


# A failed prefill, of any protocol.


async def dies(request, wire):
    wire.die()


async def talks_nonsense(request, wire):
    await wire.send(b"SMTP ready\r\n\r\n")


FAILED_PREFILLS = {
    "prefill_error": answers({}, b"503 Full"),
    "prefill_lost": dies,
    "prefill_timeout": never_answer,
}


@pytest.mark.parametrize("handoff", ["nixl", "shared_storage"])
@pytest.mark.parametrize("cause", FAILED_PREFILLS)
def test_a_failed_prefill_falls_back_and_is_counted(cause, handoff):
    timeouts = Timeouts(first_byte_ms=200.0 if cause == "prefill_timeout" else 5000.0)
    answer, _, decode, failures, handoffs = asked(
        handoff, FAILED_PREFILLS[cause], answer_stream, timeouts=timeouts
    )
    assert (answer.status, decode) == (200, [BODY])
    assert (failures, handoffs) == ({cause: 1}, 0)


def test_a_prefill_that_talks_nonsense_falls_back():
    *_, failures, _ = asked("nixl", talks_nonsense, answer_stream)
    assert failures == {"prefill_lost": 1}


def test_a_prefill_replica_that_cannot_be_reached_falls_back_and_is_left_out():
    async def main():
        async with pair_bench("nixl", [nixl_prefill], [answer_json]) as at:
            at.prefill._server.close()
            await until(lambda: at.router.membership.ready == [1])
            at.router.membership[0].health.is_well()  # nobody knows yet
            first = await at.client.post(CHAT, chat())
            second = await at.client.post(CHAT, chat())
            return first.status, second.status, at.failures, at.decode.requests

    first, second, failures, requests = run(main())
    assert (first, second) == (200, 200)
    assert failures.get("prefill_unreachable", 0) <= 1
    assert len(requests) == 2


def test_a_refusal_of_the_prefill_goes_to_the_client_and_the_decode_replica_hears_nothing():
    refusal = {"error": {"message": "too long", "code": 400}}
    answer, prefill, decode, failures, _ = asked("nixl", answers(refusal, b"400 Bad"), answer_json)
    assert (answer.status, answer.json) == (400, refusal)
    assert (len(prefill), decode) == (1, [])
    assert failures == {"rejected": 1}


# Shared storage.


def test_shared_storage_prefills_one_token_and_sends_the_request_as_it_came():
    answer, prefill, decode, failures, handoffs = asked(
        "shared_storage", answers(ONE_TOKEN), answer_stream
    )
    assert answer.status == 200
    assert (prefill[0]["max_tokens"], prefill[0]["stream"]) == (1, False)
    assert decode == [BODY]
    assert (failures, handoffs) == ({}, 1)


async def tells_an_error(request, wire):
    await wire.send(CHUNKED + chunk(b'data: {"error": {"code": 500}}\n\n' + DONE) + b"0\r\n\r\n")


def test_a_decode_engine_that_dies_over_a_cache_counts_as_no_hand_off():
    answer, _, _, failures, handoffs = asked("shared_storage", answers(ONE_TOKEN), tells_an_error)
    assert answer.body.startswith(b'data: {"error"')
    assert (failures, handoffs) == ({}, 0)


def test_bytes_that_the_protocol_does_not_say_have_no_sample():
    async def main():
        async with pair_bench("shared_storage", [answers(ONE_TOKEN)], [answer_json]) as at:
            await at.client.post(CHAT, chat())
            page = await at.client.request("GET", "/metrics")
            return at.handoffs, page.body.decode().splitlines()

    handoffs, lines = run(main())
    assert handoffs == [1]
    assert not [line for line in lines if line.startswith("pointsman_handoff_bytes_total")]


# SGLang.


def test_sglang_sends_the_same_body_with_a_room_to_both_at_once():
    rooms = Rooms()
    _, prefill, decode, failures, handoffs = asked("sglang", rooms.prefill, rooms.decode)
    assert prefill == decode
    assert 0 <= prefill[0]["bootstrap_room"] < 2**63
    assert (prefill[0]["bootstrap_host"], prefill[0]["bootstrap_port"]) == ("127.0.0.1", 8998)
    assert BODY.items() <= decode[0].items()
    assert (failures, handoffs) == ({}, 1)


def test_sglang_gives_each_of_several_its_room():
    body = completion(["a", "b", "c"])
    _, prefill, _, _, _ = asked("sglang", answers(ONE_TOKEN), answer_json, body, "/v1/completions")
    assert len(set(prefill[0]["bootstrap_room"])) == 3
    assert prefill[0]["bootstrap_host"] == ["127.0.0.1"] * 3
    assert prefill[0]["bootstrap_port"] == [8998] * 3


@pytest.mark.parametrize("cause", ["prefill_error", "prefill_lost"])
def test_where_decode_cannot_do_without_a_failed_prefill_both_are_aborted_and_another_is_tried(
    cause,
):
    rooms = Rooms()

    async def main():
        prefills = [FAILED_PREFILLS[cause], rooms.prefill]
        async with pair_bench("sglang", prefills, [rooms.decode], retries=1) as at:
            answer = await at.client.post(CHAT, chat())
            await until(lambda: rooms.left == 1)
            return answer, at.failures, [len(each.requests) for each in at.prefills]

    answer, failures, requests = run(main())
    assert answer.status == 200
    assert answer.headers["x-pointsman-attempts"] == "2"
    assert (failures, requests) == ({cause: 1}, [1, 1])


def test_sglang_without_retries_says_that_the_prefill_failed():
    answer, _, _, failures, _ = asked(
        "sglang", FAILED_PREFILLS["prefill_error"], never_answer, retries=0
    )
    assert (answer.status, answer.json["error"]["code"]) == (502, "replica_lost")
    assert failures == {"prefill_error": 1}


def test_sglang_passes_a_refusal_of_the_prefill_on():
    refusal = {"error": {"message": "too long"}}
    answer, *_, failures, _ = asked("sglang", answers(refusal, b"400 Bad"), never_answer)
    assert (answer.status, answer.json) == (400, refusal)
    assert failures == {"rejected": 1}


def test_where_decode_cannot_do_without_requests_wait_for_a_prefill_replica():
    rooms = Rooms()

    async def main():
        holding = Holding(timeout_ms=5000.0)
        async with pair_bench("sglang", [rooms.prefill], [rooms.decode], holding=holding) as at:
            at.router.membership.drain(0)
            at.client.send("POST", CHAT, chat())
            await until(lambda: at.router.admission.held == 1)
            at.router.membership[0].is_draining = False
            at.router.membership._sort_out()
            return (await at.client.response()).status

    assert run(main()) == 200


# What is not handed off.


def test_other_paths_go_to_a_decode_replica_by_itself():
    answer, prefill, decode, failures, handoffs = asked(
        "nixl", nixl_prefill, answer_json, {"input": "x"}, "/v1/embeddings"
    )
    assert (answer.status, prefill, decode) == (200, [], [{"input": "x"}])
    assert (failures, handoffs) == ({}, 0)
    assert "x-pointsman-prefill" not in answer.headers


def test_a_body_that_is_not_read_goes_to_a_decode_replica_as_it_came():
    async def main():
        async with pair_bench("nixl", [nixl_prefill], [answer_json]) as at:
            answer = await at.client.post(CHAT, b"\x1f\x8b", content_encoding="gzip")
            return answer.status, len(at.prefill.requests), at.decode.requests[0].body

    assert run(main()) == (200, 0, b"\x1f\x8b")


def test_while_no_prefill_replica_is_ready_decode_replicas_do_it_alone():
    async def main():
        async with pair_bench("nixl", [nixl_prefill], [answer_json, answer_json]) as at:
            at.router.membership.drain(0)
            statuses = [(await at.client.post(CHAT, chat())).status for _ in range(4)]
            return statuses, len(at.prefill.requests), at.failures

    assert run(main()) == ([200] * 4, 0, {})


def test_a_replica_that_is_added_makes_no_pairs_and_is_refused_with_a_word():
    async def main():
        async with pair_bench("nixl", [nixl_prefill], [answer_json], spare_slots=9) as at:
            with pytest.raises(MembershipError, match="all 2 numbers of replicas have been used"):
                at.router.membership.add(replica_address("http://127.0.0.1:9"))
            health = await at.client.request("GET", "/health")
            ready = [(await at.client.request("GET", "/ready")).status]
            at.router.membership.drain(1)
            ready.append((await at.client.request("GET", "/ready")).status)
            return [each["role"] for each in health.json["replicas"]], ready

    assert run(main()) == (["prefill", "decode"], [200, 503])


def test_a_full_pair_is_no_candidate(tmp_path):
    gate = asyncio.Event()

    async def waits(request, wire):
        await gate.wait()
        await answer_json(request, wire)

    async def main():
        settings = {"log": tmp_path / "log", "max_in_flight": 1}
        pair = pair_bench("nixl", [nixl_prefill] * 2, [waits] * 2, **settings)
        async with pair as at, RawClient(at.port) as other:
            other.send("POST", CHAT, chat())
            await until(lambda: at.router.membership[2].in_flight == 1)
            await until(lambda: at.router.membership[0].in_flight == 0)
            at.client.send("POST", CHAT, chat())
            await until(lambda: at.router.membership[3].in_flight == 1)
            gate.set()
            assert [(await each.response()).status for each in (other, at.client)] == [200, 200]

    run(main())
    first, second = read_log(tmp_path / "log").choices
    assert first.candidates == [0, 1, 2, 3]
    # Replica 2 has a request; the prefill replica 0 is free of it.
    assert second.candidates == [1, 2]


# R29 and R34.


@pytest.mark.parametrize(
    "policy", ["round_robin", "queue_aware", "fewest_misses", "locality_aware"]
)
def test_of_two_and_two_all_four_are_used_and_pairs_are_chosen_as_pairs(policy, tmp_path):
    log = tmp_path / "log"

    async def main():
        gate = asyncio.Event()

        async def waits(request, wire):
            await gate.wait()
            await nixl_prefill(request, wire)

        async with pair_bench("nixl", [waits] * 2, [answer_json] * 2, policy, log=log) as at:
            clients = [RawClient(at.port) for _ in range(8)]
            for number, client in enumerate(clients):
                await client.__aenter__()
                client.send("POST", CHAT, chat(f"{number}: " + "word " * 200))
            await until(lambda: sum(len(each.requests) for each in at.prefills) == 8)
            gate.set()
            for client in clients:
                assert (await client.response()).status == 200
                await client.__aexit__()
            return [len(each.requests) for each in (*at.prefills, *at.decodes)]

    assert run(main()) == [4, 4, 4, 4]
    choices = read_log(log).choices
    assert {choice.pair for choice in choices} <= {(0, 2), (1, 3), (0, 3), (1, 2)}
    assert all(choice.candidates == [0, 1, 2, 3] for choice in choices)


def test_a_million_rooms_in_one_burst_are_all_different():
    assert len({new_room() for _ in range(10**6)}) == 10**6
