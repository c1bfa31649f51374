"""A real vLLM on CPUs as an engine, by hand: docs/testing.md has the command."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from pointsman.bench.engines.http_calls import call
from pointsman.bench.engines.machine import Machine
from pointsman.bench.engines.protocol import CacheState, HandOff, Instance, Model
from pointsman.bench.engines.running import started
from pointsman.bench.engines.vllm import Vllm
from pointsman.router.engine.reading import EngineReading, reading_of

COMMAND = os.environ.get("POINTSMAN_VLLM", "vllm")
MODEL = os.environ.get("POINTSMAN_VLLM_MODEL", "")
FLAGS = ("--num-gpu-blocks-override", "512")  # 16,384 tokens
PROMPT = "The points were set for the down line, and the signal stood at danger. " * 50

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(shutil.which(COMMAND) is None, reason="no vLLM: set POINTSMAN_VLLM"),
    pytest.mark.skipif(not MODEL, reason="no model for vLLM: set POINTSMAN_VLLM_MODEL"),
]


def instance(core: int, **settings) -> Instance:
    model = Model(MODEL, "tiny", dtype="bfloat16")
    return Instance(
        model, context_tokens=4096, max_running=8, cores=(core,), flags=FLAGS, **settings
    )


def complete(url: str) -> None:
    body = {"model": "tiny", "prompt": PROMPT, "max_tokens": 1, "temperature": 0}
    assert call(url, "/v1/completions", "POST", body, timeout_s=120.0).status == 200


def reading(url: str) -> EngineReading:
    return reading_of(call(url, "/metrics").body.decode())


@pytest.fixture(scope="module")
def engine() -> Vllm:
    return Vllm(COMMAND, device="cpu")


def test_a_server_starts_says_its_version_and_after_a_reset_has_nothing_cached(engine, tmp_path):
    wanted = [instance(0)]
    assert engine.missing(wanted, Machine.of(os.environ)) == []
    with started(engine, wanted, tmp_path) as [running]:
        assert engine.version().startswith(engine.version_of(running.url))
        for _ in range(2):
            complete(running.url)
        before = reading(running.url)
        assert before.engine == engine.signals
        assert before.prefix_cache_hits > 500
        assert engine.reset_cache(running) == CacheState(True, "/reset_prefix_cache")
        complete(running.url)
        assert reading(running.url).prefix_cache_hits == before.prefix_cache_hits
        members = running.members()
    assert len(members) >= 3
    assert not any(Path(f"/proc/{pid}").exists() for pid in members)


def test_over_a_folder_decode_takes_the_cache_that_prefill_made(engine, tmp_path):
    handoff = HandOff("shared_storage", tmp_path / "caches")
    wanted = [
        instance(core, role=role, handoff=handoff) for core, role in ((0, "prefill"), (1, "decode"))
    ]
    with started(engine, wanted, tmp_path) as [prefill, decode]:
        complete(prefill.url)
        complete(decode.url)
        page = call(decode.url, "/metrics").body.decode()
    [hits] = [
        line
        for line in page.splitlines()
        if line.startswith("vllm:external_prefix_cache_hits_total")
    ]
    assert float(hits.split()[-1]) > 500
