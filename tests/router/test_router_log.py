"""The decision log of a router under load."""

import asyncio

import pytest

from pointsman.dispatch.log_file import read_log
from pointsman.dispatch.log_rotation import Rotation
from pointsman.dispatch.record import Usage
from pointsman.policies.catalogue import POLICIES
from pointsman.replay.replay import replay_same
from tests.router.fake_replicas import answer_json, answer_stream, dies, stream_then
from tests.router.raw_http import RawClient
from tests.router.routers import bench, chat, completion, run, until

CHAT = "/v1/chat/completions"
SECRET = "The password is swordfish. " * 20


async def converse(port: int, session: int, turns: int) -> None:
    """A session whose prompt grows, on a connection of its own."""
    async with RawClient(port) as client:
        text = f"Group {session % 3}. " * 60
        for turn in range(turns):
            text += f"Turn {turn} of session {session}. " * 9
            body = chat(text, stream=turn % 2 == 0, max_tokens=8 * turn)
            await client.post(CHAT, body, x_session_id=f"session-{session}")


@pytest.mark.parametrize("policy", [*POLICIES, "locality_aware:slack_ms=0"])
def test_a_log_of_concurrent_requests_replays_to_the_same_choices(tmp_path, policy):
    async def main():
        scripts = (answer_json, answer_stream, answer_stream)
        async with bench(*scripts, policy=policy, log=tmp_path / "log") as at:
            sessions = (converse(at.port, session, turns=5) for session in range(16))
            await asyncio.gather(*sessions)

    run(main())
    log = read_log(tmp_path / "log")
    result = replay_same(log)
    assert result.choices == 80
    assert result.differences == []
    assert result.unfinished == 0
    assert len({choice.replica for choice in log.choices}) >= 2
    assert max(max(choice.view["requests"]) for choice in log.choices) >= 2


def test_the_log_names_the_engines_counts_and_when_things_happened(tmp_path):
    async def main():
        async with bench(answer_stream, answer_json, log=tmp_path / "log") as at:
            await at.client.post(CHAT, chat(stream=True), x_request_id="streamed")
            await at.client.post(CHAT, chat(), x_request_id="whole")

    run(main())
    log = read_log(tmp_path / "log")
    streamed, whole = log.outcomes[0], log.outcomes[1]
    assert [streamed.request_id, whole.request_id] == ["streamed", "whole"]
    assert streamed.usage == whole.usage == Usage(31, 8, 16)
    assert log.choices[0].time_ms <= streamed.first_token_ms <= streamed.finish_ms
    assert streamed.finish_ms <= log.choices[1].time_ms <= whole.finish_ms
    assert whole.first_token_ms is None
    assert streamed.response_bytes > 300


def test_the_log_holds_no_text_and_no_name(tmp_path):
    async def main():
        async with bench(stream_then(3, dies), answer_json, log=tmp_path / "log") as at:
            for body in (chat(SECRET, user="Rosebud"), completion(SECRET, user="Rosebud")):
                async with RawClient(at.port) as client:
                    path = CHAT if "messages" in body else "/v1/completions"
                    await client.post(f"{path}?q=swordfish", body, x_session_id="Xanadu")
                await at.client.post(path, {**body, "max_tokens": "swordfish"})

    run(main())
    text = (tmp_path / "log").read_text().lower()
    assert text.count("\n") == 1 + 3 + 2
    for word in ("swordfish", "password", "rosebud", "xanadu"):
        assert word not in text


def test_the_log_reaches_the_disk_while_the_router_runs(tmp_path):
    async def main():
        async with bench(log=tmp_path / "log") as at:
            await at.client.post(CHAT, chat())
            await until(lambda: len(read_log(tmp_path / "log").outcomes) == 1, within_s=2.0)

    run(main())


@pytest.mark.parametrize("policy", ["fewest_misses", "locality_aware"])
def test_a_log_that_is_cut_under_load_replays_file_by_file(tmp_path, policy):
    log = tmp_path / "log"

    async def keep_conversing(port, session):
        while not (tmp_path / "log.3").exists():
            await converse(port, session, turns=3)

    async def main():
        scripts = (answer_json, answer_stream, answer_stream)
        rotation = Rotation(most_bytes=1 << 14)
        async with bench(*scripts, policy=policy, log=log, log_rotation=rotation) as at:
            await asyncio.gather(*(keep_conversing(at.port, session) for session in range(8)))

    run(main())
    paths = sorted(tmp_path.iterdir())
    assert len(paths) >= 4
    alone = [replay_same(read_log(path)) for path in paths]
    assert all(result.differences == [] for result in alone)
    whole = replay_same(read_log(*paths))
    assert whole.choices == sum(result.choices for result in alone) > 80
    assert (whole.differences, whole.unfinished, whole.earlier_outcomes) == ([], 0, 0)
