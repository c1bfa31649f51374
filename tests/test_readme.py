"""The commands of the README, run one after the other in a clean clone."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.interrupts import interruptible

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = Path(sys.executable).parent
PAGES = ("README.md", "README.zh-CN.md")
REPLICA_PORTS = (8001, 8002)
ROUTER_PORT = 8080

pytestmark = pytest.mark.readme


def blocks(document: str) -> list[tuple[str, str]]:
    """Fenced blocks as (language, text)."""
    text = (ROOT / document).read_text()
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


class FakeReplica(BaseHTTPRequestHandler):
    """A stand-in for an engine: answers any completion with one word."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        body = json.dumps(
            {
                "object": "text_completion",
                "choices": [{"index": 0, "text": " there", "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            }
        ).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def fake_replicas():
    servers = [ThreadingHTTPServer(("127.0.0.1", port), FakeReplica) for port in REPLICA_PORTS]
    for server in servers:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


def free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A clean clone, with this environment's packages in place of a second installation."""
    for tool in ("git", "curl", "make"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not on this machine")
    if not all(map(free, (*REPLICA_PORTS, ROUTER_PORT))):
        pytest.skip("ports 8001, 8002 and 8080 are not free")
    folder = tmp_path_factory.mktemp("clean") / "pointsman"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    venv = folder / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "pointsman").symlink_to(COMMANDS / "pointsman")
    for stamp in (".created", ".installed", "bin/activate"):
        (venv / stamp).touch()
    return folder


def environment() -> dict[str, str]:
    path = f"{COMMANDS}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path}


def shell(script: str, folder: Path) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Served:
    """A `pointsman serve` block, running until it is stopped as a user stops it."""

    def __init__(self, script: str, folder: Path) -> None:
        with interruptible():
            self.process = subprocess.Popen(
                ["bash", "-c", f"exec {script.strip()}"], cwd=folder, env=environment()
            )
        deadline = time.monotonic() + 60
        while free(ROUTER_PORT):
            assert self.process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(timeout=30) == 0


@pytest.mark.parametrize("document", PAGES)
def test_every_command_of_the_readme_runs(clone, document):
    served = None
    (clone / "out/decisions.jsonl").unlink(missing_ok=True)
    with fake_replicas():
        for language, script in blocks(document):
            if language == "python":
                shell(f"python - <<'END_OF_BLOCK'\n{script}\nEND_OF_BLOCK\n", clone)
            if language != "sh":
                continue
            if script.startswith("pointsman serve"):
                served = Served(script, clone)
                continue
            if served is not None and script.startswith("pointsman replay"):
                served.stop()
                served = None
            shell(script, clone)
    assert served is None
    assert json.loads((clone / "out/demo.json").read_text())["schema"] == "pointsman.compare/1"
    assert shell("git status --porcelain", clone) == ""


@pytest.mark.engine
@pytest.mark.parametrize("document", PAGES)
def test_the_replicas_of_the_readme_start(clone, document):
    for needed in ("xllamacpp", "gguf", "tokenizers"):
        pytest.importorskip(needed, reason=f"{needed} is missing: pip install pointsman[llamacpp]")
    (script,) = (text for language, text in blocks(document) if language == "bash")
    process = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", f"{script}wait"],
        cwd=clone,
        env=environment(),
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 120
        while any(map(free, REPLICA_PORTS)):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="module")
def demo() -> str:
    """What the command of `make demo` prints."""
    command = [sys.executable, "-m", "pointsman", "compare", "examples/conversation.jsonl.gz"]
    done = subprocess.run(
        [*command, "--replicas", "4"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.parametrize("document", PAGES)
def test_the_answer_of_the_demo_is_the_one_on_the_page(demo, document):
    shown = next(text for language, text in blocks(document) if language == "text")
    assert demo.endswith(shown)


@pytest.mark.parametrize("document", PAGES)
def test_the_figures_of_the_prose_are_those_of_the_demo(demo, document):
    prose = re.sub(r"^```.*?^```$", "", (ROOT / document).read_text(), flags=re.M | re.S)
    assert [figure for figure in re.findall(r"\d+\.\d%", prose) if figure not in demo] == []


def test_both_pages_have_the_same_blocks():
    ours, theirs = map(blocks, PAGES)
    assert ours == theirs


def test_the_policy_of_the_documentation_compiles_and_runs(tmp_path):
    (source,) = (text for language, text in blocks("docs/policies.md") if language == "python")
    (tmp_path / "cheapest.py").write_text(source)
    command = [sys.executable, "-m", "pointsman", "compare", "examples/conversation.jsonl.gz"]
    flags = ["--replicas", "4", "--policy", f"{tmp_path}/cheapest.py:cheapest"]
    done = subprocess.run([*command, *flags], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "Only cheapest(prefill_ms_per_token=0.05) was run" in done.stdout


@pytest.mark.parametrize("document", ["docs/costs.md"])
def test_the_commands_of_a_page_run(clone, document):
    for language, script in blocks(document):
        if language == "sh":
            shell(script, clone)
