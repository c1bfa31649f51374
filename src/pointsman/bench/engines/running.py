"""Replicas that run: started, waited for, always stopped."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from pointsman.bench.engines.http_calls import call, is_ok
from pointsman.bench.engines.processes import Process, free_ports
from pointsman.bench.engines.protocol import Engine, Instance, Launch, Ports
from pointsman.core.errors import MachineError

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.25


class Running:
    """One replica. ``log`` is None where it ran already: then it is neither stopped nor restarted.

    ``bootstrap_port``: for the router, of a prefill replica of SGLang.
    """

    def __init__(self, engine: Engine, instance: Instance, launch: Launch, log: Path) -> None:
        self.engine = engine
        self.instance = instance
        self.launch = launch
        self._process = self._started(log)

    def _started(self, log: Path) -> Process | None:
        launch = self.launch
        if not launch.command:
            return None
        process = Process(launch.command, log, dict(launch.environment), launch.grace_s)
        if self.instance.niceness:
            process.stand_back(self.instance.niceness)
        return process

    @property
    def url(self) -> str:
        """Where requests go."""
        return self.launch.url

    @property
    def bootstrap_port(self) -> int | None:
        """None: the router need not know one."""
        return self.launch.bootstrap_port

    @property
    def is_ours(self) -> bool:
        """Whether we started it."""
        return self._process is not None

    @property
    def log(self) -> Path | None:
        """What it says."""
        return None if self._process is None else self._process.log

    @property
    def code(self) -> int | None:
        """Its exit code, 128 + N after signal N; None while it runs, and of one not ours."""
        return None if self._process is None else self._process.code

    @property
    def has_ended(self) -> bool:
        """Of one that is not ours this is not known: False."""
        return self.code is not None

    def members(self) -> list[int]:
        """Its processes; none of one that is not ours."""
        return [] if self._process is None else self._process.members()

    def wait_until_ready(self, deadline_s: float | None = None) -> None:
        """Returns when it takes requests. Raises MachineError with its last lines."""
        limit_s = self.engine.ready_deadline_s if deadline_s is None else deadline_s
        ends_s, pause_s, last = time.monotonic() + limit_s, _FIRST_PAUSE_S, "no answer"
        while (left_s := ends_s - time.monotonic()) > 0.0:
            if self.has_ended:
                raise self._failed("it ended before it was ready")
            try:
                answer = call(self.url, self.engine.ready_path, timeout_s=min(30.0, left_s))
            except MachineError:
                last = "no answer"
            else:
                if is_ok(answer):
                    return
                last = f"{answer.status}"
            time.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)
        raise self._failed(f"not ready after {limit_s:g} s: {self.engine.ready_path} says {last}")

    def _failed(self, what: str) -> MachineError:
        where = f"{self.engine.name} at {self.url}"
        if self._process is None:
            return MachineError(f"{where}: {what}; expected it to run already")
        coded = "" if self.code is None else f" (code {self.code})"
        return MachineError(
            f"{where}: {what}{coded}; its log is {self.log}, whose last lines are:\n"
            f"{self._process.last_lines()}"
        )

    def tell_to_stop(self) -> None:
        """Does not wait."""
        if self._process is not None:
            self._process.tell_to_stop()

    def stop(self) -> None:
        """Returns when all its processes have ended."""
        if self._process is not None:
            self._process.stop()

    def kill(self) -> None:
        """It dies at once, as in an accident."""
        if self._process is not None:
            self._process.kill()

    def restart(self) -> None:
        """The same again at the same place, ready. Of one that is not ours a MachineError."""
        if self._process is None:
            raise MachineError(f"{self.url}: was not started here, and is not restarted")
        self._process.stop()
        self._process = self._started(self._process.log)
        self.wait_until_ready()


def start(engine: Engine, instance: Instance, log: Path) -> Running:
    """Starts it at a port that is free; does not wait. Raises InputError and MachineError."""
    return _start_at(engine, instance, Ports(*free_ports(2)), log)


def launch_of(engine: Engine, instance: Instance, ports: Ports) -> Launch:
    """How it is started, as nice as it is to be. Raises InputError."""
    launch = engine.launch(instance, ports)
    if not instance.niceness or not launch.command:
        return launch
    return replace(launch, command=("nice", "-n", str(instance.niceness), *launch.command))


def _start_at(engine: Engine, instance: Instance, ports: Ports, log: Path) -> Running:
    launch = launch_of(engine, instance, ports)
    handoff = instance.handoff
    if launch.command and handoff is not None and handoff.folder is not None:
        handoff.folder.mkdir(parents=True, exist_ok=True)
    return Running(engine, instance, launch, log)


def ports_for(count: int) -> list[Ports]:
    """Free ones for so many replicas."""
    found = free_ports(2 * count)
    return [Ports(*found[at : at + 2]) for at in range(0, len(found), 2)]


@contextmanager
def started(
    engine: Engine, instances: Sequence[Instance], folder: Path, ports: Sequence[Ports] = ()
) -> Iterator[list[Running]]:
    """Yields when all are ready, which start at the same time; all are stopped in the end.

    Their logs are replica-0.log, replica-1.log, ... in ``folder``. ``ports``: of each, such as they
    had before; without, free ones.
    """
    ports = ports or ports_for(len(instances))
    with ExitStack() as stack:
        replicas: list[Running] = []
        for number, instance in enumerate(instances):
            log = folder / f"replica-{number}.log"
            replica = _start_at(engine, instance, ports[number], log)
            replicas.append(replica)
            stack.callback(replica.stop)
        stack.callback(_tell_to_stop, replicas)
        for replica in replicas:
            replica.wait_until_ready()
        yield replicas


def _tell_to_stop(replicas: Sequence[Running]) -> None:
    """So that the last one to be stopped does not wait for those before it."""
    for replica in replicas:
        replica.tell_to_stop()
