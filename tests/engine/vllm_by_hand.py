"""What is tried with vLLM by hand, in one command (docs/testing.md has what came out).

python -m tests.engine.vllm_by_hand VLLM shared_storage|nixl|bench
    VLLM: the command of a CPU build, in an environment of its own that has torch and transformers.

Two servers of the tiny model, a core each, behind ``pointsman serve``; all end with the program.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from tests.router.serve_process import serving

PORTS = (18101, 18102)
READY_DEADLINE_S = 300.0
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "VLLM_NO_USAGE_STATS", "DO_NOT_TRACK")
FLAGS = (
    *("--served-model-name", "tiny", "--host", "127.0.0.1", "--dtype", "bfloat16"),
    *("--enforce-eager", "--max-model-len", "4096", "--max-num-batched-tokens", "4096"),
    *("--max-num-seqs", "8", "--block-size", "32", "--num-gpu-blocks-override", "512"),
    "--enable-prompt-tokens-details",
)
PROMPT = "The points were set for the down line, and the signal stood at danger. " * 50
FIXED = {"model": "tiny", "ignore_eos": True, "temperature": 0}
STREAM = {"stream": True, "stream_options": {"include_usage": True}}
COUNTERS = re.compile(
    r"^vllm:(external_prefix_cache_hits_total|nixl_\w+_(?:sum|total))\{.*\} (\S+)$", re.MULTILINE
)
BENCH = (
    *("--backend", "openai", "--model", "tiny", "--dataset-name", "prefix_repetition"),
    *("--prefix-repetition-prefix-len", "512", "--prefix-repetition-suffix-len", "128"),
    *("--prefix-repetition-num-prefixes", "64", "--prefix-repetition-output-len", "32"),
    *("--num-prompts", "320", "--request-rate", "8", "--ignore-eos", "--disable-tqdm"),
    *("--percentile-metrics", "ttft,tpot,itl,e2el", "--goodput", "ttft:500", "tpot:50"),
)


@dataclass(frozen=True)
class Vllm:
    """The command, and the folder with the model."""

    command: Path
    model: Path

    @contextmanager
    def server(
        self, number: int, flags: Sequence[str], log: Path, **environment: str
    ) -> Iterator[subprocess.Popen]:
        """Yields when it is ready; it has core ``number``."""
        port, ours = PORTS[number], dict.fromkeys(OFFLINE, "1")
        ours |= {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1", **environment}
        ours["VLLM_CPU_OMP_THREADS_BIND"] = str(number)
        with open(log, "wb") as output:
            process = subprocess.Popen(
                [self.command, "serve", self.model, "--port", str(port), *FLAGS, *flags],
                env=os.environ | ours,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            _wait_until_ready(process, url_of(number), log)
            yield process
        finally:
            process.terminate()  # its own processes end with it
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                kill(process)

    def bench(self, url: str, seed: int) -> None:
        """``vllm bench serve``, which prints its table."""
        told = ("--base-url", url, "--tokenizer", self.model, "--seed", str(seed))
        command = [self.command, "bench", "serve", *told, *BENCH]
        environment = os.environ | dict.fromkeys(OFFLINE, "1")
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        print(done.stdout[done.stdout.index("=====") :])


def url_of(number: int) -> str:
    """Where the server listens."""
    return f"http://127.0.0.1:{PORTS[number]}"


def kill(process: subprocess.Popen) -> None:
    """It dies at once with all its processes."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(20)


def _wait_until_ready(process: subprocess.Popen, url: str, log: Path) -> None:
    began_s = time.monotonic()
    while time.monotonic() - began_s < READY_DEADLINE_S:
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                print(f"{url} is ready after {time.monotonic() - began_s:.0f} s")
                return
        except OSError:
            time.sleep(0.25)
    raise AssertionError(f"{url} is not ready; see {log}")


def page_of(url: str) -> str:
    """Its page of metrics."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        return answer.read().decode()


def ask(url: str, name: str, body: dict) -> str:
    """One line of what came: status, first byte, tokens, how it ended."""
    path = "chat/completions" if "messages" in body else "completions"
    data, kind = json.dumps({**FIXED, **body}).encode(), {"content-type": "application/json"}
    began_s, said, first_ms = time.monotonic(), b"", 0.0
    try:
        answer = urllib.request.urlopen(urllib.request.Request(f"{url}/v1/{path}", data, kind))
    except urllib.error.HTTPError as error:
        answer = error
    try:
        while piece := answer.read1():
            first_ms = first_ms or (time.monotonic() - began_s) * 1000
            said += piece
        how = "whole"
    except (OSError, HTTPException) as error:
        how = type(error).__name__
    usage = re.findall(rb'"usage":(\{"prompt_tokens".*?\})\}?[,}]', said)[-1:] or [said[-200:]]
    return f"  {name}: {answer.status} {how}, first {first_ms:.0f} ms, {usage[0].decode()}"


def prompts(tag: str) -> Iterator[tuple[str, dict]]:
    """A long prompt by both APIs, streamed and not."""
    for kind, extra in (("whole", {}), ("stream", STREAM)):
        text = f"{tag} {kind}. {PROMPT}"
        yield f"completions {kind}", {"prompt": text, "max_tokens": 12, **extra}
        chat = {"messages": [{"role": "user", "content": text}], "max_tokens": 12}
        yield f"chat {kind}", chat | extra


def pairs(vllm: Vllm, folder: Path, handoff: str) -> None:
    """A pair: hand-offs, then the prefill server dies, then the decode server under streams."""
    with ExitStack() as stack:
        prefill, decode = (
            stack.enter_context(
                vllm.server(number, *_connector(handoff, number, folder), **_side(number))
            )
            for number in (0, 1)
        )
        told = ("--prefill", url_of(0), "--decode", url_of(1), "--handoff", handoff)
        log = folder / "pairs.jsonl"
        router = stack.enter_context(serving(*told, "--decision-log", str(log)))
        url = f"http://127.0.0.1:{router.port}"
        for name, body in prompts("A pair"):
            print(ask(url, name, body))
        print("the decode server says:", dict(COUNTERS.findall(page_of(url_of(1)))))
        kill(prefill)
        print("the prefill server is dead")
        for name, body in prompts("No prefill"):
            print(ask(url, name, body))
        with ThreadPoolExecutor() as threads:
            long = {"prompt": PROMPT, "max_tokens": 2500}
            ends = [threads.submit(ask, url, "long", long | extra) for extra in (STREAM, {})]
            time.sleep(2.0)
            kill(decode)
            print("the decode server is dead")
            print(*(end.result() for end in ends), sep="\n")
        _tell(router, log)


def _side(number: int) -> dict[str, str]:
    """NIXL's environment: over loopback, each with a port of its own. The example connector has no
    use for it."""
    port = str(25600 + 10 * number)
    where = {"VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT": port}
    return {"UCX_TLS": "tcp,self,sm", "UCX_NET_DEVICES": "lo", **where}


def _connector(handoff: str, number: int, folder: Path) -> tuple[list[str], Path]:
    """The flags of a server, and its log."""
    log = folder / f"{handoff}{number}.log"
    if handoff == "nixl":
        role = ("kv_producer", "kv_consumer")[number]
        config = {"kv_connector": "NixlConnector", "kv_role": role, "kv_buffer_device": "cpu"}
        return ["--kv-transfer-config", json.dumps(config)], log
    where = {"shared_storage_path": str(folder / "caches")}
    config = {"kv_connector": "ExampleConnector", "kv_role": "kv_both"}
    config["kv_connector_extra_config"] = where
    return ["--no-enable-chunked-prefill", "--kv-transfer-config", json.dumps(config)], log


def bench(vllm: Vllm, folder: Path) -> None:
    """Two plain replicas whose cache events are followed, then not; then one by itself."""
    with ExitStack() as stack:
        for number in (0, 1):
            event = {"enable_kv_cache_events": True, "publisher": "zmq", "topic": f"kv{number}"}
            event["endpoint"] = f"tcp://127.0.0.1:{25557 + number}"  # it connects
            flags = ["--kv-events-config", json.dumps(event)]
            stack.enter_context(vllm.server(number, flags, folder / f"plain{number}.log"))
        for seed, follows in enumerate((True, False)):
            file, log = folder / f"router{seed}.toml", folder / f"plain{seed}.jsonl"
            file.write_text("".join(_table(number, follows=follows) for number in (0, 1)))
            told = ("--policy", "locality_aware:slack_ms=50", "--scrape-interval-s", "1")
            with serving("--config", str(file), *told, "--decision-log", str(log)) as router:
                print("through the router,", "with" if follows else "without", "cache events")
                url = f"http://127.0.0.1:{router.port}"
                vllm.bench(url, seed)
                page = page_of(url).splitlines()
                names = ("predicted_cached", "false_hit_tokens", "kv_events", "engine_prompt")
                starts = tuple(f"pointsman_{name}" for name in names)
                print(*(line for line in page if line.startswith(starts)), sep="\n")
                _tell(router, log)
        print("one server by itself")
        vllm.bench(url_of(0), 2)


def _table(number: int, *, follows: bool) -> str:
    events = f'kv_events = "@tcp://127.0.0.1:{25557 + number}"\nkv_topic = "kv{number}"\n'
    return f'[[replicas]]\nurl = "{url_of(number)}"\n{events if follows else ""}'


def _tell(router, log: Path) -> None:
    """The router stops; what its log says, and that it replays."""
    assert router.stop() == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    ends = [line["status"] for line in lines if line["event"] == "outcome"]
    print("outcomes:", {status: ends.count(status) for status in sorted(set(ends))})
    took = [line["took_ms"] for line in lines if line["event"] == "handed_off"]
    causes = [line["cause"] for line in lines if line["event"] == "fell_back"]
    print("hand-offs took ms:", took, "fell back:", causes)
    subprocess.run([sys.executable, "-m", "pointsman", "replay", log], check=True)


def main(command: Path, what: str) -> None:
    """Everything is in a folder for temporary files, which goes at the end."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        vllm = Vllm(command, folder / "tiny")
        python = [command.parent / "python", "-m", "tests.engine.tiny_llama", vllm.model]
        subprocess.run(python, env=os.environ | {"HF_HUB_OFFLINE": "1"}, check=True)
        if what == "bench":
            bench(vllm, folder)
        else:
            pairs(vllm, folder, what)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
