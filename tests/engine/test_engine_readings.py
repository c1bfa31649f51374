"""What the router reads of a real llama.cpp server is what the server did."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from pointsman.bench.engines.llamacpp import SLOTS
from pointsman.bench.engines.tiny_model import tiny_model
from pointsman.router.engine.fetch import Limits
from pointsman.router.engine.reading import EngineReading
from pointsman.router.engine.scraper import EnginePages, read_engine
from pointsman.router.upstream import replica_address

pytestmark = pytest.mark.engine

for needed in ("xllamacpp", "gguf", "tokenizers"):
    pytest.importorskip(needed, reason=f"{needed} is missing: pip install pointsman[llamacpp]")

from tests.engine.llama_server import Engine, llama_server  # noqa: E402

DEADLINE_S = 60
PROMPT = "def double(x):\n    return x + x\n" * 30


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    log = tmp_path_factory.mktemp("readings") / "engine.log"
    with llama_server(tiny_model(), log) as engine:
        yield engine


def read(engine: Engine) -> EngineReading:
    return asyncio.run(
        read_engine(EnginePages(replica_address(engine.url)), Limits(timeout_s=10.0))
    )


def complete(engine: Engine, tokens: int) -> dict:
    body = {"prompt": PROMPT, "max_tokens": tokens, "ignore_eos": True, "temperature": 0}
    request = urllib.request.Request(
        f"{engine.url}/v1/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
        return json.load(answer)["usage"]


def test_the_tokens_of_a_reading_are_those_that_the_answers_counted(engine):
    before = read(engine)
    usages = [complete(engine, 8) for _ in range(3)]
    after = read(engine)
    prompt = sum(usage["prompt_tokens"] for usage in usages)
    cached = sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in usages)
    assert cached > 0
    assert after.engine == "llama.cpp"
    assert after.prompt_tokens - before.prompt_tokens == prompt
    assert after.cached_tokens - before.cached_tokens == cached
    assert after.generated_tokens - before.generated_tokens == 24
    assert (after.waiting_requests, after.running_requests, after.kv_use) == (0, 0, 0.0)


def test_what_waits_runs_and_fills_the_cache_is_seen_while_it_does(engine):
    requests = SLOTS + 3

    async def main(threads: ThreadPoolExecutor) -> EngineReading:
        loop = asyncio.get_running_loop()
        answers = [loop.run_in_executor(threads, complete, engine, 400) for _ in range(requests)]
        done = asyncio.gather(*answers)
        async with asyncio.timeout(DEADLINE_S):
            while True:
                reading = await read_engine(
                    EnginePages(replica_address(engine.url)), Limits(timeout_s=10.0)
                )
                counts = (reading.running_requests, reading.waiting_requests)
                if counts == (SLOTS, 3) and reading.kv_use:
                    break
                assert not done.done(), "they ended before they were seen"
        await done
        return reading

    with ThreadPoolExecutor(requests) as threads:
        reading = asyncio.run(main(threads))
    assert 0 < reading.kv_use < 1
    assert reading.kv_blocks is None
    assert reading.preemptions is None
