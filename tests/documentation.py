"""Pages of the documentation as what they hold, and the clean clone that their commands run in.

In a page ``sh`` and ``python`` blocks are run, one after the other; a ``text`` block right behind
one is held against what it printed; ``bash`` blocks are not run here, for they need more than a
clone has or their results vary.
"""

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
REPLICA_PORTS = (8001, 8002)
ROUTER_PORT = 8080
LEFT_OUT = "..."


def blocks(document: str) -> list[tuple[str, str]]:
    """Fenced blocks as (language, text)."""
    text = (ROOT / document).read_text()
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def assert_shown(excerpt: str, printed: str) -> None:
    """Each piece of the excerpt stands in what was printed, whole lines, in this order.

    Pieces are told apart by a line of three dots, which stands for what is left out.
    """
    lines, place = printed.splitlines(), 0
    for piece in _pieces(excerpt.splitlines()):
        starts = range(place, len(lines) - len(piece) + 1)
        found = next((at for at in starts if lines[at : at + len(piece)] == piece), None)
        assert found is not None, "\n".join(["not printed:", *piece, "but:", *lines])
        place = found + len(piece)


def _pieces(lines: list[str]) -> list[list[str]]:
    pieces: list[list[str]] = [[]]
    for line in lines:
        if line == LEFT_OUT:
            pieces.append([])
        else:
            pieces[-1].append(line)
    return [piece for piece in pieces if piece]


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


def clean_clone(folder: Path) -> Path:
    """A clean clone, with this environment's packages in place of a second installation."""
    for tool in ("git", "curl", "make"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not on this machine")
    if not all(map(free, (*REPLICA_PORTS, ROUTER_PORT))):
        pytest.skip("ports 8001, 8002 and 8080 are not free")
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


def python(script: str, folder: Path) -> str:
    return shell(f"python - <<'END_OF_BLOCK'\n{script}\nEND_OF_BLOCK\n", folder)


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
