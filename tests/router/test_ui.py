"""What /ui/state says, held against the answers that clients got and the decision log."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from pointsman.dispatch.log_file import read_log
from pointsman.replay.replay import replay_same
from pointsman.router.engine.scraper import ScrapeSettings
from pointsman.router.prompt import CHAT
from pointsman.router.settings import Holding
from pointsman.router.ui.access import UiSettings
from tests.router.fake_replicas import (
    CHUNKED,
    DONE,
    PIECES,
    answer_json,
    answer_stream,
    chunk,
    never_answer,
    sized,
)
from tests.router.pair_stand_ins import nixl_prefill, pair_bench
from tests.router.raw_http import RawClient
from tests.router.routers import Bench, bench, chat, run, until

GAUGES = b"vllm:num_requests_waiting 3\nvllm:num_requests_running 7\nvllm:kv_cache_usage_perc 0.5\n"
MARK = "xyzzy-7f3a"


@asynccontextmanager
async def looking(*scripts, **given):
    """A bench, and what asks for the state; the first time was before any request."""
    async with bench(*scripts, ui=UiSettings(), **given) as at, RawClient(at.port, "[::1]") as eye:

        async def look():
            return (await eye.request("GET", "/ui/state")).json

        await look()
        yield at, look


async def ask(at: Bench, count: int, **fields) -> list[dict[str, str]]:
    """The headers of each answer."""
    return [(await at.client.post(CHAT, chat(**fields))).headers for _ in range(count)]


def test_requests_and_shares_are_those_that_the_replicas_got():
    async def main():
        async with looking(answer_json, answer_json) as (at, look):
            await ask(at, 3)
            return await look(), [len(fake.requests) for fake in at.fakes]

    state, got = run(main())
    assert [each["requests"] for each in state["replicas"]] == got == [2, 1]
    assert [each["share_fraction"] for each in state["replicas"]] == [2 / 3, 1 / 3]
    assert state["requests_per_s"] == pytest.approx(3 / state["window_s"])
    assert (state["standing"], state["ready"]) == ("good", 2)


def test_the_last_decisions_are_what_the_answers_headers_say_the_newest_first():
    async def main():
        async with looking(answer_json, answer_json) as (at, look):
            return await ask(at, 3), await look()

    headers, state = run(main())
    urls = {each["id"]: each["url"] for each in state["replicas"]}
    newest_first = state["decisions"]
    assert [each["sequence"] for each in newest_first] == [2, 1, 0]
    for said, decision in zip(reversed(headers), newest_first, strict=True):
        assert urls[decision["place"][0]] == said["x-pointsman-replica"]
        assert decision["reason"] == said["x-pointsman-reason"]
        assert f"{decision['wait_ms']:.3f}" == said["x-pointsman-expected-wait-ms"]


def test_the_terms_of_each_candidate_are_those_of_the_decision_log(tmp_path):
    async def main():
        async with looking(
            answer_json, answer_json, policy="locality_aware", log=tmp_path / "log"
        ) as (at, look):
            await ask(at, 3, text="word " * 400)
            return (await look())["decisions"]

    decisions, log = run(main()), read_log(tmp_path / "log")
    for decision, line in zip(reversed(decisions), log.choices, strict=True):
        found, view = decision["candidates"], line.view
        waits = [max(0.0, free_ms - line.time_ms) for free_ms in view["queue"]]
        saved = [
            all_ms - ms for all_ms, ms in zip(view["full_work_ms"], view["work_ms"], strict=True)
        ]
        assert found["in_all"] == len(line.candidates) == 2
        assert found["place"] == [[number, None] for number in line.seen]
        assert line.seen[found["chosen"]] == line.replica
        assert found["wait_ms"] == waits
        assert found["longer_wait_ms"] == [each - min(waits) for each in waits]
        assert found["prefill_ms"] == view["work_ms"]
        assert found["saved_prefill_ms"] == saved
        assert found["first_token_ms"] == [
            a + b for a, b in zip(waits, view["work_ms"], strict=True)
        ]
        assert found["cached_tokens"] == view["prefix"]
        assert found["iteration_ms"] == view["iteration_ms"]
    assert decisions[0]["candidates"]["saved_prefill_ms"][log.choices[2].replica] > 0.0


def test_of_many_candidates_those_are_shown_that_mattered():
    """Seventeen replicas, one prefix: the newest request goes to where it is."""

    async def main():
        async with looking(*[answer_json] * 17, policy="locality_aware:slack_ms=1e6") as (at, look):
            await ask(at, 2, text="word " * 400)
            return (await look())["decisions"][0]

    decision = run(main())
    found = decision["candidates"]
    assert found["in_all"] == 17
    assert len(found["place"]) <= 3
    assert found["place"][found["chosen"]] == decision["place"]
    assert min(found["longer_wait_ms"]) == 0.0
    assert max(found["cached_tokens"]) == decision["cached_tokens"] > 0


def test_a_log_that_is_looked_at_lacks_nothing_and_replays(tmp_path):
    async def main():
        async with looking(answer_stream, answer_stream, log=tmp_path / "log") as (at, look):
            await ask(at, 5, stream=True)
            at.router.live.close()
            await ask(at, 5, stream=True)
            await look()
            await ask(at, 5, stream=True)

    run(main())
    log = read_log(tmp_path / "log")
    assert len(log.choices) == len(log.outcomes) == 15
    assert replay_same(log).differences == []


def test_hits_as_expected_and_as_engines_count_them_stand_apart():
    """The fake says 16 of 31 each time; ours is what the log would have."""

    async def main():
        async with looking(answer_json) as (at, look):
            await ask(at, 2, text="word " * 400)
            await until(lambda: at.router.dispatcher.ledger.in_flight == 0)
            return await look()

    state = run(main())
    first, second = reversed(state["decisions"])
    assert (first["cached_tokens"], second["cached_tokens"] > 0) == (0, True)
    expected = second["cached_tokens"] / (first["prompt_tokens"] + second["prompt_tokens"])
    for each in (state, state["replicas"][0]):
        assert each["expected_cached_fraction"] == pytest.approx(expected)
        assert each["reported_cached_fraction"] == pytest.approx(16 / 31)


def test_the_first_token_and_the_end_of_a_request_come_to_its_decision():
    goes_on = asyncio.Event()

    async def in_two_parts(request, wire):
        await wire.send(CHUNKED + chunk(PIECES[0]))
        await goes_on.wait()
        await wire.send(chunk(DONE) + b"0\r\n\r\n")

    async def main():
        async with looking(in_two_parts) as (at, look):
            at.client.send("POST", CHAT, chat(stream=True))
            await until(lambda: at.router.counters.ttft_ms[0].total > 0.0)
            before = await look()
            goes_on.set()
            await at.client.response()
            return before, await look()

    before, after = run(main())
    assert before["replicas"][0]["in_flight"] == 1
    assert before["decisions"][0]["result"] is None
    assert before["decisions"][0]["ttft_ms"] == before["ttft"]["p99_ms"] > 0.0
    assert after["decisions"][0]["ttft_ms"] == before["decisions"][0]["ttft_ms"]
    assert after["decisions"][0]["result"]["status"] == "ok"
    assert after["replicas"][0]["in_flight"] == 0


def test_a_replica_that_is_gone_says_why_and_the_fleet_is_reduced_then_down():
    async def main():
        async with looking(answer_json, answer_json) as (at, look):
            states = []
            for fake, member in zip(at.fakes, at.router.membership.members, strict=True):
                await fake.__aexit__()
                await until(lambda member=member: member.state == "unreachable")
                states.append(await look())
            return states

    one, none = run(main())
    assert (one["standing"], one["ready"]) == ("reduced", 1)
    assert one["replicas"][0]["state"] == "unreachable"
    assert "refused" in one["replicas"][0]["last_failure"]["error"]
    assert one["replicas"][1]["last_failure"] is None
    assert (none["standing"], none["ready"]) == ("down", 0)


def test_gauges_are_the_engines_own_with_their_age():
    async def engine(request, wire):
        await (
            wire.send(sized(GAUGES, b"text/plain"))
            if request.path == "/metrics"
            else answer_json(request, wire)
        )

    async def main():
        async with looking(engine, scrape=ScrapeSettings(1.0)) as (_, look):
            before = (await look())["replicas"][0]
            async with asyncio.timeout(20):
                while (replica := (await look())["replicas"][0])["gauges_age_s"] is None:
                    await asyncio.sleep(0.02)
            return before, replica

    before, replica = run(main())
    assert before["kv_use_fraction"] is before["waiting_requests"] is None
    names = ("waiting_requests", "running_requests", "kv_use_fraction", "gauges_are_stale")
    assert [replica[name] for name in names] == [3, 7, 0.5, False]


def test_one_that_got_no_replica_says_why():
    async def main():
        full = {"holding": Holding(requests=0), "max_in_flight": 1}
        async with looking(never_answer, **full) as (at, look), RawClient(at.port) as other:
            at.client.send("POST", CHAT, chat())
            await until(lambda: len(at.fake.requests) == 1)
            return (await other.post(CHAT, chat())).status, await look()

    status, state = run(main())
    assert status == 429
    assert [each["kind"] for each in state["decisions"]] == ["unplaced", "sent"]
    assert state["decisions"][0]["reason"] == "overloaded"
    assert state["decisions"][0]["place"] is None
    assert state["refused_requests"] == 1


def test_a_request_that_is_held_is_a_decision_too_and_counts_for_its_replica():
    async def main():
        holding = Holding(wait_ms=1.0, timeout_ms=1e6)
        async with (
            looking(never_answer, holding=holding) as (at, look),
            RawClient(at.port) as other,
        ):
            at.client.send("POST", CHAT, chat("word " * 40_000, stream=True))
            await until(lambda: len(at.fake.requests) == 1)
            other.send("POST", CHAT, chat())
            await until(lambda: at.router.admission.held == 1)
            return await look()

    state = run(main())
    assert [each["kind"] for each in state["decisions"]] == ["held", "sent"]
    assert state["replicas"][0]["held_requests"] == state["held_requests"] == 1
    assert state["replicas"][0]["wait_ms"] > 1.0


def test_a_request_that_was_held_and_is_sent_says_by_which_decision():
    """It is sent when it has waited for long enough, whatever there is to do."""

    async def main():
        holding = Holding(wait_ms=1.0, timeout_ms=30.0)
        async with (
            looking(never_answer, holding=holding) as (at, look),
            RawClient(at.port) as other,
        ):
            at.client.send("POST", CHAT, chat("word " * 40_000, stream=True))
            await until(lambda: len(at.fake.requests) == 1)
            other.send("POST", CHAT, chat())
            await until(lambda: len(at.fake.requests) == 2)
            return (await look())["decisions"]

    keys = ("kind", "sequence", "followed_by")
    told = [tuple(each[key] for key in keys) for each in run(main())]
    assert told == [("sent", 2, None), ("held", 1, 2), ("sent", 0, None)]


def test_of_a_pair_both_replicas_are_named_and_counted():
    async def main():
        prefills, decodes = [nixl_prefill], [answer_stream, answer_stream]
        looked_at = {"policy": "round_robin", "ui": UiSettings()}
        async with (
            pair_bench("nixl", prefills, decodes, **looked_at) as at,
            RawClient(at.port, "localhost") as eye,
        ):
            await eye.request("GET", "/ui/state")
            for _ in range(2):
                await at.client.post(CHAT, chat("word " * 400, stream=True))
            return (await eye.request("GET", "/ui/state")).json

    state = run(main())
    assert [each["role"] for each in state["replicas"]] == ["prefill", "decode", "decode"]
    assert [each["requests"] for each in state["replicas"]] == [2, 1, 1]
    assert [each["place"] for each in state["decisions"]] == [[0, 2], [0, 1]]
    assert state["decisions"][0]["candidates"]["place"] == [[0, 1], [0, 2]]


def test_nothing_that_a_client_wrote_stands_in_what_is_served():
    """A prompt, a model, a session, a user, a request id, a query, a path and a key."""

    async def main():
        async with looking(answer_json) as (at, look):
            said = {"x_session_id": f"s-{MARK}", "x_request_id": f"r-{MARK}"}
            said["authorization"] = f"Bearer k-{MARK}"
            body = chat(f"Say {MARK}", user=f"u-{MARK}", max_tokens=7) | {"model": f"m-{MARK}"}
            await at.client.post(f"{CHAT}?q={MARK}", body, **said)
            await at.client.request("GET", f"/v1/files/{MARK}", **said)
            async with RawClient(at.port, "localhost") as eye:
                page = await eye.request("GET", "/ui")
            return await look(), page.body

    state, page = run(main())
    assert [each["path"] for each in state["decisions"]] == ["other", CHAT]
    assert state["decisions"][1]["output_tokens"] == 7
    assert len(state["decisions"][1]["session"]) == 16
    assert MARK not in json.dumps(state)
    assert MARK.encode() not in page
