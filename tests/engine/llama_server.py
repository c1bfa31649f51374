"""A llama.cpp server as a process group of its own: started, waited for, always stopped.

As a program (``llama_server.py MODEL PORT SLOT_FOLDER``) it is the server itself.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SLOTS = 8
CONTEXT_A_SLOT = 4096
READY_DEADLINE_S = 60
STOP_DEADLINE_S = 10


@dataclass(frozen=True)
class Engine:
    url: str
    process: subprocess.Popen

    def kill(self) -> None:
        """It dies at once, without a word to those that it serves."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(STOP_DEADLINE_S)

    def counter(self, name: str) -> float:
        """One of the engine's own counters, such as ``prompt_tokens_cached_total``."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        [value] = [line.split()[1] for line in lines if line.startswith(f"llamacpp:{name} ")]
        return float(value)


@contextmanager
def llama_server(model: Path, log: Path, slot_folder: Path | None = None) -> Iterator[Engine]:
    """Yields when the model is loaded; what the engine says is in ``log``.

    ``slot_folder``: where slots are saved to and restored from.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [sys.executable, __file__, str(model), str(port), str(slot_folder or "")],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            engine = Engine(f"http://127.0.0.1:{port}", process)
            _wait_until_ready(engine, process, log)
            yield engine
        finally:
            _stop(process)


def _wait_until_ready(engine: Engine, process: subprocess.Popen, log: Path) -> None:
    deadline_s = time.monotonic() + READY_DEADLINE_S
    while time.monotonic() < deadline_s:
        assert process.poll() is None, f"the engine ended:\n{log.read_text()[-2000:]}"
        try:
            with urllib.request.urlopen(f"{engine.url}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.02)
    raise AssertionError(f"the engine is not ready after {READY_DEADLINE_S} s; see {log}")


def _stop(process: subprocess.Popen) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, number)
            try:
                process.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                continue


def _serve(model: str, port: int, slot_folder: str = "") -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {"tiny"}
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_ctx = SLOTS * CONTEXT_A_SLOT
    params.n_parallel = SLOTS
    params.cont_batching = True
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.endpoint_metrics = params.endpoint_slots = params.endpoint_props = True
    params.cache_ram_mib = 512
    if slot_folder:
        params.slot_save_path = f"{slot_folder}/"
    params.n_gpu_layers = 0
    params.swa_full = True
    params.use_jinja = True
    server = xllamacpp.Server(params)
    print("listening on", server.listening_address, flush=True)
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    told.wait()
    os._exit(0)


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
