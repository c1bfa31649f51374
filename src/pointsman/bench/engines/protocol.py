"""What an engine is, and what it is asked for.

    Engine.missing(instances, machine)   what is not there, each with its fix
    Engine.launch(instance, ports)       the command line; nothing is started
    running.start(engine, instance, log) -> Running     ready, stop, kill, restart
    Engine.reset_cache(running)          the state of its cache afterwards

``Engine.handoffs`` are values of ``pointsman serve --handoff``; ``Engine.signals`` is the engine's
name in the router's readings of ``/metrics``, which know under which names it tells what.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from pointsman.bench.engines.machine import Machine, missing_model
from pointsman.bench.missing import Missing
from pointsman.core.checks import check_integer
from pointsman.core.errors import InputError, missing_field, unknown_name

if TYPE_CHECKING:
    from pointsman.bench.engines.running import Running

Role = Literal["none", "prefill", "decode"]
ROLES = ("none", "prefill", "decode")
MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class Model:
    """``path``: a file, a folder or an id of the hub; ``name``: what requests call it.

    What is None is left to the engine.
    """

    path: str
    name: str
    revision: str | None = None
    tokenizer: str | None = None
    dtype: str | None = None


@dataclass(frozen=True, slots=True)
class HandOff:
    """How a prompt's cache gets from prefill to decode.

    ``protocol``: as ``pointsman serve --handoff`` names it. ``folder``: that all replicas see,
    for the protocols that move files; it is made where it is not there.
    """

    protocol: str
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class Instance:
    """One replica to be: one model on ``tp`` times ``pp`` devices.

    ``max_running``: requests served at once. ``context_tokens``: of each of them. ``cores``: those
    that compute, in equal parts for the ranks; none: any. ``gpus``: as CUDA_VISIBLE_DEVICES has
    them; none: any. ``flags``: the engine's own, after ours, so that they win. ``url``: where it
    runs already; it is not started then, nor stopped. ``bootstrap_port``: of such a one, if it is
    a prefill replica of SGLang. ``niceness``: how far it stands back behind other processes, as
    ``nice`` has it.

    Raises InputError.
    """

    model: Model
    tp: int = 1
    pp: int = 1
    role: Role = "none"
    handoff: HandOff | None = None
    max_running: int | None = None
    context_tokens: int | None = None
    cores: tuple[int, ...] = ()
    gpus: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    url: str | None = None
    bootstrap_port: int | None = None
    niceness: int = 0

    def __post_init__(self) -> None:
        for name in ("tp", "pp"):
            check_integer("instance", name, getattr(self, name), 1)
        for name in ("max_running", "context_tokens"):
            if getattr(self, name) is not None:
                check_integer("instance", name, getattr(self, name), 1)
        if self.role not in ROLES:
            raise unknown_name("instance", "role", self.role, ROLES)
        if self.role != "none" and self.handoff is None:
            raise missing_field("instance", "handoff", f"one, for role is {self.role!r}")
        if len(self.cores) % self.ranks:
            raise InputError(
                f"instance: cores are {len(self.cores)}; expected a multiple of tp x pp,"
                f" which is {self.ranks}"
            )

    @property
    def ranks(self) -> int:
        """How many devices it takes."""
        return self.tp * self.pp


@dataclass(frozen=True, slots=True)
class Ports:
    """``serving``: of its HTTP. ``meeting``: where prefill and decode find each other."""

    serving: int
    meeting: int


@dataclass(frozen=True, slots=True)
class Launch:
    """How a replica is started. ``environment``: beside what is inherited.

    ``bootstrap_port``: what the router has to know of a prefill replica of SGLang. An empty
    ``command``: it runs already. ``grace_s``: from SIGTERM to SIGKILL.
    """

    url: str
    command: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    bootstrap_port: int | None = None
    grace_s: float = 10.0


@dataclass(frozen=True, slots=True)
class CacheState:
    """Whether a replica's prefix cache is known to be empty, and by what."""

    is_empty: bool
    how: str


class Engine(Protocol):
    """One way to serve a model.

    ``signals``: None: it is seen from the names on the page. ``ready_path`` answers 200 once
    requests are taken, within ``ready_deadline_s``.
    """

    @property
    def name(self) -> str:
        """As experiments call it."""

    @property
    def signals(self) -> str | None:
        """Its name in the router's readings."""

    @property
    def handoffs(self) -> tuple[str, ...]:
        """The protocols of hand-offs that it can do."""

    @property
    def ready_path(self) -> str:
        """What is asked for."""

    @property
    def ready_deadline_s(self) -> float:
        """How long a start may take."""

    def version(self) -> str | None:
        """Of what would be started; None: it is not there, or not started by us."""

    def version_of(self, url: str) -> str | None:
        """Of what runs there, as it says; None: it does not."""

    def missing(self, instances: Sequence[Instance], machine: Machine) -> list[Missing]:
        """All that is not there for all of them at once."""

    def launch(self, instance: Instance, ports: Ports) -> Launch:
        """How it is started. Raises InputError for what this engine cannot be."""

    def reset_cache(self, running: Running) -> CacheState:
        """Empties its prefix cache as well as it can. Raises MachineError where it is refused."""


def check_handoff(engine: Engine, instance: Instance, in_files: Sequence[str] = ()) -> None:
    """Refuse a hand-off that the engine cannot do, and one ``in_files`` without a folder."""
    handoff = instance.handoff
    if handoff is None:
        return
    where = f"engine {engine.name}"
    if handoff.protocol not in engine.handoffs:
        raise unknown_name(where, "hand-off", handoff.protocol, engine.handoffs)
    if handoff.protocol in in_files and handoff.folder is None:
        raise missing_field(where, "the hand-off's folder", "one that all replicas see")


def local_url(port: int) -> str:
    """Replicas that we start listen on loopback only."""
    return f"http://127.0.0.1:{port}"


def missing_models(models: Sequence[Model], machine: Machine) -> list[Missing]:
    """Those whose files are not on this machine, each once."""
    revisions = sorted({(model.path, model.revision or "") for model in models})
    return [
        missing
        for path, revision in revisions
        for missing in missing_model(path, revision or None, machine.hub)
    ]
