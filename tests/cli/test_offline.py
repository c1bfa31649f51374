"""No command needs the network."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.compiling import without_compiling

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "conversation.jsonl.gz"

CLOSED = """
import socket, sys
def refuse(*_):
    raise AssertionError("a connection was attempted")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
from pointsman.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_first_run_opens_no_connection(tmp_path):
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}  # nothing compiled yet
    environment.pop("NUMBA_CACHE_DIR", None)
    command = [sys.executable, "-c", CLOSED, "compare", str(EXAMPLE), "--replicas", "2"]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "queue_aware" in done.stdout


def test_the_router_starts_without_a_look_at_anything_but_its_replicas():
    flags = ["--listen", "127.0.0.1:0", "--replica", "http://127.0.0.1:9"]
    command = [sys.executable, "-c", CLOSED, "serve", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as it:
        announcement = it.stdout.readline()
        it.send_signal(signal.SIGTERM)
        _, errors = it.communicate(timeout=30)
    said = without_compiling(errors).splitlines()
    assert it.returncode == 0
    assert all(line.startswith("pointsman: replica http://127.0.0.1:9 ") for line in said)
    assert announcement.startswith("listening on http://127.0.0.1:")
