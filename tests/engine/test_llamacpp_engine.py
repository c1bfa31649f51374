"""llama.cpp's real server as an engine: started, asked, emptied, stopped."""

from __future__ import annotations

import asyncio
import json
import socket
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from pointsman.bench.engines.external import External
from pointsman.bench.engines.llamacpp import LlamaCpp
from pointsman.bench.engines.machine import Machine
from pointsman.bench.engines.protocol import CacheState, HandOff, Instance, Model
from pointsman.bench.engines.running import start, started
from pointsman.bench.engines.tiny_model import tiny_model
from pointsman.core.errors import MachineError
from pointsman.router.engine.fetch import Limits
from pointsman.router.engine.scraper import EnginePages, read_engine
from pointsman.router.upstream import replica_address

pytestmark = pytest.mark.engine

for needed in ("xllamacpp", "gguf", "tokenizers"):
    pytest.importorskip(needed, reason=f"{needed} is missing: pip install pointsman[llamacpp]")

PROMPT = "def double(x):\n    return x + x\n" * 60
MANY = 12  # prompts: more than the slots


def instance(**settings) -> Instance:
    return Instance(Model(str(tiny_model()), "tiny"), **settings)


def cached_tokens(url: str, prompt: str = PROMPT) -> int:
    """Of the prompt, which is computed and kept by this."""
    body = {"prompt": prompt, "max_tokens": 1, "temperature": 0}
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["usage"]["prompt_tokens_details"]["cached_tokens"]


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("engine")
    with started(LlamaCpp(), [instance(max_running=2)], folder) as [running]:
        yield running


def test_nothing_is_missing_and_the_version_is_the_wheels():
    from importlib.metadata import version

    assert LlamaCpp().missing([instance()], Machine((), tiny_model().parent)) == []
    assert LlamaCpp().version() == f"xllamacpp {version('xllamacpp')}"


def test_after_a_reset_nothing_is_cached_of_prompts_beyond_the_slots_either(running):
    prompts = [f"# Number {number}\n{PROMPT}" for number in range(MANY)]
    for prompt in prompts:
        cached_tokens(running.url, prompt)
    assert cached_tokens(running.url, prompts[0]) > 500
    url = running.url
    assert LlamaCpp().reset_cache(running) == CacheState(True, "restarted")
    assert running.url == url
    assert cached_tokens(url, prompts[0]) == 0
    assert cached_tokens(url, prompts[-1]) < 20  # what all of them begin with


def test_the_router_reads_it_as_the_engine_that_it_says(running):
    pages = EnginePages(replica_address(running.url))
    reading = asyncio.run(read_engine(pages, Limits(timeout_s=10.0)))
    assert reading.engine == LlamaCpp().signals


def test_it_has_as_many_slots_as_are_served_at_once(running):
    with urllib.request.urlopen(f"{running.url}/props", timeout=10) as answer:
        assert json.load(answer)["total_slots"] == 2
    assert LlamaCpp().version_of(running.url)


def test_it_listens_on_loopback_only(running):
    port = urlsplit(running.url).port
    listening = [
        line.split()[1]
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        for line in Path(table).read_text().splitlines()[1:]
        if line.split()[3] == "0A" and line.split()[1].endswith(f":{port:04X}")
    ]
    assert listening == [f"{socket.htonl(0x7F000001):08X}:{port:04X}"]


def test_a_file_that_is_no_model_fails_with_what_the_engine_says(tmp_path):
    wrong = tmp_path / "wrong.gguf"
    wrong.write_bytes(b"GGUF" + bytes(100))
    broken = start(LlamaCpp(), Instance(Model(str(wrong), "tiny")), tmp_path / "engine.log")
    with pytest.raises(MachineError) as raised:
        broken.wait_until_ready()
    broken.stop()
    message = str(raised.value)
    assert "ended before it was ready (code 1)" in message
    assert f"llama.cpp does not start with {wrong}: " in message
    assert "exiting due to model loading error" in message  # its own words
    assert "Traceback" not in message


def test_replicas_of_a_pair_can_save_slots_to_the_folder_of_the_hand_off(tmp_path):
    handoff = HandOff("llamacpp", tmp_path / "slots")
    with started(LlamaCpp(), [instance(role="prefill", handoff=handoff)], tmp_path) as [running]:
        cached_tokens(running.url)
        body = json.dumps({"filename": "slot.bin"}).encode()
        saved = f"{running.url}/slots/7?action=save"
        with urllib.request.urlopen(urllib.request.Request(saved, body), timeout=10) as answer:
            assert json.load(answer)["n_written"] > 0
    assert (tmp_path / "slots" / "slot.bin").is_file()


def test_one_that_runs_already_is_taken_as_it_is_and_left_running(running, tmp_path):
    there = instance(url=running.url)
    for engine in (LlamaCpp(), External()):
        assert engine.missing([there], Machine((), tmp_path)) == []
        with started(engine, [there], tmp_path) as [attached]:
            assert attached.url == running.url
            assert not engine.reset_cache(attached).is_empty
        assert cached_tokens(running.url) >= 0
    assert External().version_of(running.url).startswith("llamacpp b")
    assert list(tmp_path.iterdir()) == []


def test_what_the_server_that_runs_already_serves_is_said_where_it_is_another_model(running):
    there = Instance(Model("anything", "qwen"), url=running.url)
    [missing] = External().missing([there], Machine((), tiny_model().parent))
    assert str(missing) == f"the model qwen at {running.url}: it serves: tiny"
