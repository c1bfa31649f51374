"""A real llama.cpp server that is killed under load: nobody waits for ever, all is counted."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import ExitStack

import pytest

from pointsman.bench.engines.tiny_model import tiny_model
from pointsman.dispatch.log_file import read_log
from pointsman.replay.replay import replay_same
from tests.router.raw_http import RawClient
from tests.router.routers import run
from tests.router.serve_process import serving

pytestmark = pytest.mark.engine

for needed in ("xllamacpp", "gguf", "tokenizers"):
    pytest.importorskip(needed, reason=f"{needed} is missing: pip install pointsman[llamacpp]")

from tests.engine.llama_server import Engine, llama_server  # noqa: E402

CLIENTS = 12
REQUESTS = 6
KILLED_AFTER = 20  # answers


class Load:
    """Clients that ask one after the other; the first engine dies when some have been answered."""

    def __init__(self, port: int, victim: Engine) -> None:
        self.port = port
        self.victim: Engine | None = victim
        self.ends: Counter[str] = Counter()

    async def run(self) -> None:
        async with asyncio.timeout(50):
            await asyncio.gather(*map(self._ask, range(CLIENTS)))

    async def _ask(self, client: int) -> None:
        for number in range(REQUESTS):
            async with RawClient(self.port) as connection:
                body = {
                    "prompt": f"Client {client} asks: " + f"what about {number}? " * 20,
                    "max_tokens": 60,
                    "ignore_eos": True,
                    "stream": number % 2 == 0,
                }
                response = await connection.post("/v1/completions", body)
            self.ends[end_of(response, stream=body["stream"])] += 1
            if self.victim is not None and sum(self.ends.values()) >= KILLED_AFTER:
                victim, self.victim = self.victim, None
                await asyncio.to_thread(victim.kill)


def end_of(response, *, stream: bool) -> str:
    if response.status != 200:
        assert response.json["error"]["code"]
        return "an error of the router"
    if stream:
        is_done = response.body.rstrip().endswith(b"data: [DONE]")
        assert is_done or b'"error"' in response.body
        return "whole" if is_done else "an error event"
    return "whole" if response.is_whole else "broken off"


def test_every_request_ends_and_none_is_lost_silently(tmp_path):
    log_path = tmp_path / "decisions.jsonl"
    with ExitStack() as stack:
        engines = [
            stack.enter_context(llama_server(tiny_model(), tmp_path / f"engine{number}.log"))
            for number in range(3)
        ]
        replicas = [flag for engine in engines for flag in ("--replica", engine.url)]
        router = stack.enter_context(serving(*replicas, "--decision-log", str(log_path)))
        load = Load(router.port, engines[0])
        run(load.run())
        assert router.stop() == 0
    assert load.victim is None
    assert load.ends.total() == CLIENTS * REQUESTS
    # Those on their way to it may go elsewhere; streams that had begun are lost, and say so.
    assert load.ends["whole"] >= CLIENTS * REQUESTS - CLIENTS
    log = read_log(log_path)
    assert len(log.outcomes) == len(log.choices)
    ended = Counter(outcome.status for outcome in log.outcomes.values())
    assert ended.total() - ended["retried"] == CLIENTS * REQUESTS
    assert ended["ok"] == load.ends["whole"]
    assert replay_same(log).differences == []
    late = [choice.replica for choice in log.choices[-CLIENTS:]]
    assert 0 not in late
