"""A stand-in for an engine: a program with a health endpoint, and its faults on demand.

As a program it is the server; ``StandIn`` is the engine that starts it.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pointsman.bench.engines.machine import Machine
from pointsman.bench.engines.protocol import CacheState, Instance, Launch, Model, Ports, local_url
from pointsman.bench.engines.running import Running
from pointsman.bench.missing import Missing

MODEL = Model("nowhere", "stand-in")
SLEEPER = ("-c", "import time; time.sleep(3600)")


@dataclass(frozen=True)
class StandIn:
    """What it does wrong stands in the instance's flags."""

    name: str = "stand-in"
    signals: str | None = None
    handoffs: tuple[str, ...] = ("llamacpp",)
    ready_path: str = "/health"
    ready_deadline_s: float = 60.0

    def version(self) -> str | None:
        return "1"

    def version_of(self, url: str) -> str | None:
        return "1"

    def missing(self, instances: Sequence[Instance], machine: Machine) -> list[Missing]:
        return []

    def launch(self, instance: Instance, ports: Ports) -> Launch:
        command = (sys.executable, __file__, "--port", str(ports.serving), *instance.flags)
        environment = (("STAND_IN", "says so"),)
        return Launch(local_url(ports.serving), command, environment, grace_s=0.5)

    def reset_cache(self, running: Running) -> CacheState:
        return CacheState(False, "it has none")


def instance(*flags: str) -> Instance:
    return Instance(MODEL, flags=flags)


class Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(self.server.status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_) -> None:
        pass


def serve() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ends-with", type=int, help="this code, after two lines")
    parser.add_argument("--status", type=int, default=200, help="of its health")
    parser.add_argument("--ignores-sigterm", action="store_true")
    parser.add_argument(
        "--has-child", action="store_true", help="in its group, that ignores SIGTERM"
    )
    parser.add_argument("--has-daemon", action="store_true", help="in a session of its own")
    asked = parser.parse_args()
    print("stand-in for an engine,", os.environ["STAND_IN"], flush=True)
    if asked.ends_with is not None:
        print("RuntimeError: no room for the weights", flush=True)
        sys.exit(asked.ends_with)
    if asked.ignores_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if asked.has_child:
        previous = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which a child inherits
        print("process", subprocess.Popen([sys.executable, *SLEEPER]).pid, flush=True)
        signal.signal(signal.SIGTERM, previous)
    if asked.has_daemon:
        child = subprocess.Popen([sys.executable, *SLEEPER], start_new_session=True)
        print("process", child.pid, flush=True)
    server = ThreadingHTTPServer(("127.0.0.1", asked.port), Health)
    server.status = asked.status
    print("process", os.getpid(), flush=True)
    server.serve_forever()


def wait_until(holds, deadline_s: float = 30.0) -> None:
    """Waits for a condition, not for a time."""
    ends_s = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < ends_s, "it does not come to hold"
        time.sleep(0.01)


if __name__ == "__main__":
    serve()
