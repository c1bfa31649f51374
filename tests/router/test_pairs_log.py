"""The decision log of pairs: what it tells, and that it replays."""

import asyncio
import json

import pytest

from pointsman.core.errors import InputError
from pointsman.dispatch.log_file import read_log
from pointsman.dispatch.log_rotation import Rotation
from pointsman.dispatch.record import FellBack, HandedOff, Prefilled
from pointsman.replay.replay import replay_same
from tests.router.fake_replicas import answer_stream
from tests.router.pair_stand_ins import (
    BODY,
    CHAT,
    answers,
    nixl_prefill,
    pair_bench,
)
from tests.router.raw_http import RawClient
from tests.router.routers import chat, run, until


def test_the_log_tells_of_each_hand_off_and_replays_to_the_same_choices(tmp_path):
    path = tmp_path / "log"

    async def main():
        calls = iter(range(100))

        async def prefill(request, wire):
            fails = next(calls) % 5 == 4
            await (answers({}, b"500 Oops") if fails else nixl_prefill)(request, wire)

        async with pair_bench(
            "nixl", [prefill] * 2, [answer_stream] * 2, "fewest_misses", log=path
        ) as at:
            for number in range(12):
                body = chat("shared " * 300 + str(number % 3), stream=number % 2 == 0)
                assert (await at.client.post(CHAT, body)).status == 200
        return at.failures

    failures = run(main())
    log = read_log(path)
    kinds = [type(event) for event in log.events]
    fallen = failures["prefill_error"]
    assert fallen >= 1
    assert kinds.count(FellBack) == fallen
    assert kinds.count(Prefilled) == kinds.count(HandedOff) == 12 - fallen
    assert log.head.version == 4
    assert len(log.outcomes) == 12
    replayed = replay_same(log)
    assert (replayed.choices, replayed.differences) == (12, [])


def test_a_log_that_is_cut_while_hand_offs_go_on_replays_file_by_file(tmp_path):
    path = tmp_path / "log"

    async def main():
        gate = asyncio.Event()

        async def prefill(request, wire):
            if "waits" in request.body.decode():
                await gate.wait()
            await nixl_prefill(request, wire)

        settings = {"log": path, "log_rotation": Rotation(most_bytes=1)}
        pair = pair_bench("nixl", [prefill] * 2, [answer_stream] * 2, "fewest_misses", **settings)
        async with pair as at, RawClient(at.port) as other:
            for _ in range(3):
                await at.client.post(CHAT, chat("shared " * 200, stream=True))
            other.send("POST", CHAT, chat("waits " * 200, stream=True))
            await until(lambda: len(at.router.dispatcher.pair_ledger.prefills) == 1)
            at.router._log.rotate_if_full(at.router._snapshot)
            await at.client.post(CHAT, chat("shared " * 200, stream=True))
            gate.set()
            assert (await other.response()).status == 200
            await at.client.post(CHAT, chat("shared " * 200, stream=True))

    run(main())
    whole, last = replay_same(read_log(*tmp_path.glob("log*"))), replay_same(read_log(path))
    assert (whole.choices, whole.differences) == (6, [])
    assert (last.choices, last.differences) == (2, [])


def test_a_line_of_a_hand_off_where_there_are_no_pairs_is_refused(tmp_path):
    path = tmp_path / "log"
    run(_one_request(path))
    lines = path.read_text().splitlines()
    head = json.loads(lines[0])
    del head["pairs"], head["moves_all"]
    path.write_text("\n".join([json.dumps(head), *lines[1:], ""]))
    with pytest.raises(InputError, match="line 2: "):
        read_log(path)


async def _one_request(path):
    async with pair_bench("nixl", [nixl_prefill], [answer_stream], log=path) as at:
        await at.client.post(CHAT, BODY)


@pytest.mark.parametrize("told", [{"timings": {"prompt_ms": 298.4}}, {}], ids=["told", "not told"])
def test_the_log_has_how_long_the_engine_says_that_a_prefill_took(tmp_path, told):
    path = tmp_path / "log"

    async def main():
        prefill = answers({"choices": [{"text": "a"}], **told})
        async with pair_bench("shared_storage", [prefill], [answer_stream], log=path) as at:
            await at.client.post(CHAT, chat(stream=True))

    run(main())
    [prefilled] = [event for event in read_log(path).events if isinstance(event, Prefilled)]
    assert prefilled.engine_ms == told.get("timings", {}).get("prompt_ms")
