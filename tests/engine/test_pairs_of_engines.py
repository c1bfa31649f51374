"""Prefill and decode on two real llama.cpp servers that share a folder for their slots."""

from __future__ import annotations

import json
from contextlib import ExitStack

import pytest

from pointsman.bench.engines.tiny_model import tiny_model
from pointsman.dispatch.log_file import read_log
from pointsman.dispatch.record import HandedOff
from pointsman.replay.replay import replay_same
from tests.router.raw_http import RawClient
from tests.router.routers import run
from tests.router.serve_process import serving

pytestmark = pytest.mark.engine

for needed in ("xllamacpp", "gguf", "tokenizers"):
    pytest.importorskip(needed, reason=f"{needed} is missing: pip install pointsman[llamacpp]")

from tests.engine.llama_server import llama_server  # noqa: E402

PROMPT = "The points were set for the down line, and the signal stood at danger. " * 60
REQUESTS = 4


def bodies():
    fixed = {"max_tokens": 12, "ignore_eos": True, "temperature": 0}
    for number in range(REQUESTS):
        text = f"Report {number}. {PROMPT}"
        if number % 2:
            messages = [{"role": "user", "content": text}]
            yield "/v1/chat/completions", {"messages": messages, "stream": True, **fixed}
        else:
            yield "/v1/completions", {"prompt": text, **fixed}


async def ask_all(port):
    """The bodies of all answers."""
    answers = []
    for path, body in bodies():
        async with RawClient(port) as client:  # llama.cpp closes after a stream
            answer = await client.post(path, body)
        assert answer.status == 200, answer.body
        answers.append(answer.body.decode())
    return answers


def text_of(answer):
    lines = [line.removeprefix("data: ") for line in answer.splitlines()]
    chunks = [json.loads(line) for line in lines if line.startswith("{")]
    choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    return "".join(
        each.get("text") or each.get("delta", {}).get("content") or "" for each in choices
    )


def test_the_decode_engine_does_not_compute_a_prompt_again(tmp_path):
    log_path = tmp_path / "decisions.jsonl"
    with ExitStack() as stack:
        folder = tmp_path / "slots"
        folder.mkdir()
        prefill, decode, alone = (
            stack.enter_context(llama_server(tiny_model(), tmp_path / name, folder))
            for name in ("prefill", "decode", "alone")
        )
        pair = ("--prefill", prefill.url, "--decode", decode.url, "--handoff", "llamacpp")
        router = stack.enter_context(serving(*pair, "--decision-log", str(log_path)))
        over_pairs = run(ask_all(router.port))
        assert router.stop() == 0
        by_itself = run(ask_all(int(alone.url.rpartition(":")[2])))
        computed = {
            name: engine.counter("prompt_tokens_total")
            for name, engine in (("prefill", prefill), ("decode", decode), ("alone", alone))
        }
        reused = decode.counter("prompt_tokens_cached_total")
    log = read_log(log_path)
    prompts = [outcome.usage.prompt_tokens for outcome in log.outcomes.values()]
    cached = [outcome.usage.cached_tokens for outcome in log.outcomes.values()]
    assert all(tokens > 1000 for tokens in prompts)
    # All but the last token of each prompt came with the slot.
    assert cached == [tokens - 1 for tokens in prompts]
    assert (computed["decode"], reused) == (REQUESTS, sum(prompts) - REQUESTS)
    assert computed["prefill"] > 1000
    assert list(map(text_of, over_pairs)) == list(map(text_of, by_itself))
    moved = [event for event in log.events if isinstance(event, HandedOff)]
    assert len(moved) == REQUESTS
    assert all(event.bytes > 1_000_000 and event.took_ms > 0.0 for event in moved)
    assert replay_same(log).differences == []
