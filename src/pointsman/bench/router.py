"""Our router in front of a group: ``pointsman serve`` as users run it, a process of its own."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import OK
from pathlib import Path

from pointsman.bench.engines.http_calls import call
from pointsman.bench.engines.processes import Process, free_ports, shown
from pointsman.bench.engines.protocol import local_url
from pointsman.bench.engines.running import Running
from pointsman.core.errors import InputError, MachineError

READY_DEADLINE_S = 120.0  # the first start of a version compiles
_PAUSE_S = 0.05
_GRACE_S = 10.0
_SCRAPE_S = "1"
_WORDS_OF_PYTHON = 3  # python -m pointsman


@dataclass(frozen=True, slots=True)
class Asked:
    """What a router is started with; ``flags`` come last, so that they win.

    ``handoff``: the protocol, where prefill and decode are apart. ``decision_log``: a new file.
    """

    policy: str
    decision_log: Path
    handoff: str | None = None
    costs: Path | None = None
    goodput: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Router:
    """One that takes requests."""

    url: str
    command: str  # as a shell takes it
    log: Path
    process: Process


@contextmanager
def routed(asked: Asked, replicas: Sequence[Running], log: Path) -> Iterator[Router]:
    """Yields once requests are taken; always stopped. Raises MachineError with its last lines."""
    (port,) = free_ports(1)
    behind = [Behind(each.url, each.instance.role, each.bootstrap_port) for each in replicas]
    command = command_of(asked, behind, port)
    asked.decision_log.parent.mkdir(parents=True, exist_ok=True)
    process = Process(command, log, {}, _GRACE_S)
    try:
        router = Router(local_url(port), shown(as_typed(command), {}), log, process)
        _wait_until_ready(router)
        yield router
    finally:
        process.stop()


@dataclass(frozen=True, slots=True)
class Behind:
    """One replica as the router is told of it."""

    url: str
    role: str = "none"
    bootstrap_port: int | None = None


def as_typed(command: Sequence[str]) -> list[str]:
    """As a user types it, wherever Python is."""
    return ["pointsman", *command[_WORDS_OF_PYTHON:]]


def command_of(asked: Asked, replicas: Sequence[Behind], port: int) -> list[str]:
    """``pointsman serve`` in front of these."""
    command = [sys.executable, "-m", "pointsman", "serve", "--listen", f"127.0.0.1:{port}"]
    if asked.handoff is None:
        command += [word for each in replicas for word in ("--replica", each.url)]
    else:
        for flag, role in (("--prefill", "prefill"), ("--decode", "decode")):
            command += [flag, *(each.url for each in replicas if each.role == role)]
        command += ["--handoff", asked.handoff]
        command += _bootstrap(replicas)
    command += ["--policy", asked.policy, "--decision-log", str(asked.decision_log)]
    command += ["--decision-log-mib", "0", "--scrape-interval-s", _SCRAPE_S]  # one file
    if asked.costs is not None:
        command += ["--costs", str(asked.costs)]
    if asked.goodput:
        command += ["--goodput", *asked.goodput]
    return [*command, *asked.flags]


def _bootstrap(replicas: Sequence[Behind]) -> list[str]:
    """The one port that the router can be told by a flag."""
    ports = sorted({each.bootstrap_port for each in replicas if each.bootstrap_port is not None})
    if len(ports) > 1:
        raise InputError(
            f"router: {len(ports)} prefill replicas have bootstrap ports {ports}; expected one"
            " prefill replica, for each replica's own can be told by a file alone (serve --config)"
        )
    return ["--bootstrap-port", str(ports[0])] if ports else []


def _wait_until_ready(router: Router) -> None:
    ends_s = time.monotonic() + READY_DEADLINE_S
    while time.monotonic() < ends_s and router.process.code is None:
        try:
            if call(router.url, "/ready", timeout_s=5.0).status == OK:
                return
        except MachineError:
            pass  # it does not listen yet
        time.sleep(_PAUSE_S)
    coded = router.process.code
    what = f"not ready after {READY_DEADLINE_S:g} s" if coded is None else f"ended with {coded}"
    raise MachineError(
        f"pointsman serve at {router.url}: {what}; its log is {router.log}, whose last lines are:\n"
        f"{router.process.last_lines()}"
    )
