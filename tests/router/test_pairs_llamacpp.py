"""llama.cpp's slot files, on stand-ins: what is asked of whom, and what fails."""

import asyncio

import pytest

from tests.router.pair_stand_ins import (
    BODY,
    CHAT,
    Slots,
    asked,
    bodies,
    pair_bench,
    paths,
)
from tests.router.raw_http import RawClient
from tests.router.routers import chat, run, until


def test_llamacpp_saves_the_slot_of_the_prefill_and_decodes_on_the_restored_one():
    files = {}

    async def main():
        async with pair_bench("llamacpp", [Slots(files)], [Slots(files)]) as at:
            answer = await at.client.post(CHAT, BODY)
            page = await at.client.request("GET", "/metrics")
            return answer, at.prefill, at.decode, page.body.decode(), at.failures

    answer, prefill, decode, page, failures = run(main())
    assert (answer.status, failures) == (200, {})
    assert paths(prefill) == ["/props", CHAT, "/slots/0?action=save"]
    assert paths(decode) == ["/props", "/slots/0?action=restore", CHAT]
    computed = bodies(prefill)[1]
    assert (computed["n_predict"], computed["id_slot"], computed["stream"]) == (0, 0, False)
    assert not {"max_tokens", "stream_options"} & computed.keys()
    assert bodies(decode)[2] == {**BODY, "id_slot": 0, "cache_prompt": True}
    assert bodies(prefill)[2] == bodies(decode)[1]
    assert "pointsman_handoff_bytes_total" in page
    [moved] = [line for line in page.splitlines() if line.startswith("pointsman_handoff_bytes")]
    assert moved.endswith(" 2500000")


def test_the_files_of_slots_are_written_over():
    files = {}

    async def main():
        async with pair_bench("llamacpp", [Slots(files)], [Slots(files)]) as at:
            for number in range(6):
                await at.client.post(CHAT, chat(f"{number}" * 400))

    run(main())
    assert 1 <= len(files) <= 2


REFUSED_TRANSFERS = {
    "save is refused": ("transfer_failed", {"prefill": "action=save"}, {}),
    "restore is refused": ("transfer_failed", {"decode": "action=restore"}, {}),
    "save hangs": ("transfer_timeout", {}, {"prefill": "action=save"}),
    "restore hangs": ("transfer_timeout", {}, {"decode": "action=restore"}),
    "no props": ("transfer_failed", {"prefill": "/props"}, {}),
}


@pytest.mark.parametrize("kind", REFUSED_TRANSFERS)
def test_a_transfer_that_fails_or_hangs_falls_back(kind):
    cause, refuses, stalls = REFUSED_TRANSFERS[kind]
    files = {}
    made = {
        who: Slots(files, refuses=refuses.get(who, ""), stalls_at=stalls.get(who, ""))
        for who in ("prefill", "decode")
    }
    answer, _, decode, failures, handoffs = asked(
        "llamacpp", made["prefill"], made["decode"], timeout_ms=200.0
    )
    assert answer.status == 200
    assert decode[-1] == BODY
    assert (failures, handoffs) == ({cause: 1}, 0)


def test_a_decode_replica_without_a_free_slot_gets_the_request_without_a_hand_off():
    files, gate = {}, asyncio.Event()

    class Busy(Slots):
        async def __call__(self, request, wire):
            if request.path == CHAT:
                await gate.wait()
            await super().__call__(request, wire)

    async def main():
        busy = Busy(files, slots=1)
        pair = pair_bench("llamacpp", [Slots(files)], [busy])
        async with pair as at, RawClient(at.port) as other:
            other.send("POST", CHAT, chat())
            await until(lambda: CHAT in paths(at.decode))
            at.client.send("POST", CHAT, chat("second"))
            await until(lambda: paths(at.decode).count(CHAT) == 2)
            gate.set()
            statuses = [(await each.response()).status for each in (other, at.client)]
            return statuses, at.failures, at.handoffs

    assert run(main()) == ([200, 200], {"no_room": 1}, [1])
