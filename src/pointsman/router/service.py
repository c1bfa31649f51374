"""The router as a process: starts, listens, and stops with its log complete."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import math
import os
import signal
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import uvloop

from pointsman.core.errors import InputError, MachineError
from pointsman.dispatch.dispatcher import Dispatcher, Ending, Question, Rules
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.log_file import DecisionLog
from pointsman.dispatch.prefix_index import DEFAULT_INDEX_BYTES, Chain, PrefixIndex
from pointsman.dispatch.record import SCHEMA, VERSION, LogHead
from pointsman.policies.policy import READABLE
from pointsman.router.admin import Admin
from pointsman.router.admission import Admission
from pointsman.router.api_keys import ApiKeys
from pointsman.router.client import ClientConnection, Serve
from pointsman.router.edge import Complain, Connection, Edge, EdgeLimits
from pointsman.router.exchange import Exchange
from pointsman.router.membership import SPARE_SLOTS, Means, Membership, Replica
from pointsman.router.models import DEFAULT_INTERVAL_S, ModelTable
from pointsman.router.probes import Prober
from pointsman.router.prompt import BLOCK_TOKENS, QuestionReader
from pointsman.router.settings import Resilience
from pointsman.router.upstream import ReplicaAddress

FLUSH_S = 0.5


@dataclass(frozen=True, slots=True)
class AdminSettings:
    """Where the admin API listens, and the keys that it wants, if any.

    Raises InputError for an address that other machines reach, without a key.
    """

    host: str
    port: int
    keys: ApiKeys | None = None

    def __post_init__(self) -> None:
        if self.keys is None and not is_loopback(self.host):
            raise InputError(
                f"--admin {self.host}:{self.port}: can be reached from other machines; expected"
                " --admin-key-file, or a loopback address"
            )


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """What a router is started with.

    ``policy_name`` is how the log names the policy, ``policy_sha256`` the digest of its file.
    ``spare_slots``: how many replicas may be added while it runs.
    ``models``: those of each replica, where they are given and not asked for.
    """

    replicas: Sequence[ReplicaAddress]
    rules: Rules
    policy_name: str
    facts: ReplicaFacts = field(default_factory=ReplicaFacts)  # of every replica
    host: str = "127.0.0.1"
    port: int = 8080
    log_path: Path | None = None
    policy_sha256: str | None = None
    limits: EdgeLimits = field(default_factory=EdgeLimits)
    api_keys: ApiKeys | None = None
    prefix_index_bytes: int = DEFAULT_INDEX_BYTES
    resilience: Resilience = field(default_factory=Resilience)
    spare_slots: int = SPARE_SLOTS
    admin: AdminSettings | None = None
    models_interval_s: float = DEFAULT_INTERVAL_S
    models: Sequence[Sequence[str]] = ()
    tls: ssl.SSLContext | None = None


@dataclass(frozen=True, slots=True)
class Front:
    """What answers on a listener, and within which limits."""

    serve: Serve
    edge: Edge
    tls: ssl.SSLContext | None = None


class Router:
    """One router on the running event loop; ``complain`` is told what no client can be told."""

    def __init__(self, settings: RouterSettings, complain: Complain) -> None:
        """Compile, open the log and make ready to choose.

        Raises InputError where the log holds something, MachineError where it cannot be written.
        """
        if not settings.replicas:
            raise InputError("router: no replicas; expected at least one")
        slots = len(settings.replicas) + settings.spare_slots
        compile_for(settings.rules, len(settings.replicas))
        started_s = time.monotonic()
        self._resilience = settings.resilience
        self._log: DecisionLog | None = None
        if settings.log_path is not None:
            self._log = DecisionLog(settings.log_path, head_of(settings), complain)
        self.dispatcher = Dispatcher(
            settings.rules,
            [settings.facts] * len(settings.replicas),
            lambda: (time.monotonic() - started_s) * 1000.0,
            self._log,
            room=slots,
        )
        self.dispatcher.prefixes = PrefixIndex(slots, settings.prefix_index_bytes)
        self._facts = settings.facts
        means = Means(settings.resilience)
        self.membership = Membership(settings.replicas, means, slots)
        self.membership.on_joined = self._welcome
        self.membership.on_left = lambda replica: self.models.remove(replica.number)
        self.admission = Admission(
            self.dispatcher, self.membership, settings.resilience, means.clock_s
        )
        self._prober = Prober(self.membership, settings.resilience.probing)
        reader = QuestionReader(session_key=os.urandom(16))
        self.models = ModelTable(settings.models_interval_s)
        for number, address in enumerate(settings.replicas):
            self.models.add(number, address, settings.models[number] if settings.models else ())
        self.admission.serving = self.models.candidates_for
        self._exchange = Exchange(self.admission, reader, self.models, settings.resilience.retries)
        self._tls = settings.tls
        self.edge = Edge(settings.limits, settings.api_keys, complain)
        self._edges = [self.edge]  # and that of the admin API
        self._servers: list[asyncio.Server] = []
        self._flusher: asyncio.TimerHandle | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    async def start(self, listener: socket.socket) -> None:
        """Serve whoever connects to the listener."""
        await self._listen(listener, Front(self._exchange.serve, self.edge, self._tls))
        self.models.start()
        self._flush()
        self._sweep()
        self._prober.start()

    async def start_admin(self, listener: socket.socket, keys: ApiKeys | None) -> None:
        """Serve the admin API to whoever connects to this listener."""
        edge = Edge(EdgeLimits(), keys, self.edge.complain)
        self._edges.append(edge)
        await self._listen(listener, Front(Admin(self.membership).serve, edge))

    async def _listen(self, listener: socket.socket, front: Front) -> None:
        server = await asyncio.get_running_loop().create_server(
            lambda: ClientConnection(front.serve, front.edge),
            sock=listener,
            ssl=front.tls,
            ssl_handshake_timeout=front.edge.limits.head_timeout_s if front.tls else None,
        )
        self._servers.append(server)
        front.edge.start()

    @property
    def _connections(self) -> list[Connection]:
        return [connection for edge in self._edges for connection in edge.connections]

    async def stop(self, drain_s: float | None = None) -> None:
        """Accept no more, let what is in flight end for a while, then cut it off.

        Cancelled, it has accepted no more; called again with 0, it does the rest.
        """
        if drain_s is None:
            drain_s = self._resilience.drain_ms / 1000.0
        for server in self._servers:
            server.close()
        for connection in self._connections:
            connection.close_when_idle()
        await self._wait_for_clients(drain_s)
        for connection in self._connections:
            connection.abort()
        await self._wait_for_clients(drain_s=1.0)
        for edge in self._edges:
            edge.stop()
        self._prober.stop()
        self.models.close()
        self.membership.close()
        for timer in (self._flusher, self._sweeper):
            if timer is not None:
                timer.cancel()
        if self._log is not None:
            self._log.close()

    async def _wait_for_clients(self, drain_s: float) -> None:
        deadline_s = time.monotonic() + drain_s
        while self._connections or self.dispatcher.ledger.in_flight:
            if time.monotonic() > deadline_s:
                return
            await asyncio.sleep(0.01)

    def _flush(self) -> None:
        if self._log is not None:
            self._log.flush()
            self._flusher = asyncio.get_running_loop().call_later(FLUSH_S, self._flush)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self.membership.check(loop.time())
        self.admission.check(loop.time())
        self._sweeper = loop.call_later(self._resilience.sweep_s, self._sweep)

    def _welcome(self, replica: Replica) -> None:
        number = self.dispatcher.join(replica.url, self._facts)
        assert number == replica.number, "replicas are numbered alike everywhere"
        self.models.add(number, replica.pool.address, ())
        self._prober.watch(replica)


def head_of(settings: RouterSettings) -> LogHead:
    """The first line of the router's log."""
    policy = settings.rules.policy
    return LogHead(
        schema=SCHEMA,
        version=VERSION,
        pointsman=version("pointsman"),
        started_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        policy=settings.policy_name,
        parameters=dict(policy.parameters),
        reads=sorted(policy.reads),
        signals=list(READABLE),
        replicas=[address.url for address in settings.replicas],
        seed=settings.rules.seed,
        block_tokens=BLOCK_TOKENS,
        facts=[settings.facts] * len(settings.replicas),
        policy_sha256=settings.policy_sha256,
    )


def compile_for(rules: Rules, replicas: int) -> None:
    """Compile all that a choice runs, so that no request waits for it.

    Raises InputError for a policy that chooses what is not there.
    """
    rehearsal = Dispatcher(rules, [ReplicaFacts()] * replicas, lambda: 0.0)
    question = Question("rehearsal", chain=Chain([1], BLOCK_TOKENS), streams=True)
    ticket = rehearsal.choose(question)
    ticket.first_token()
    ticket.end(Ending())
    rehearsal.read(0, (math.nan, math.nan, math.nan))


def listener_on(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one. Raises MachineError where it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        why = str(error.strerror).partition(" (while")[0]  # Python repeats the address
        raise MachineError(f"cannot listen on {host}:{port}: {why}") from error


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def run(settings: RouterSettings, announce: Callable[[str], None], complain: Complain) -> None:
    """Serve until SIGINT or SIGTERM; ``announce`` gets the address once connections are taken."""
    with ExitStack() as stack:
        listener = stack.enter_context(listener_on(settings.host, settings.port))
        admin = None
        if settings.admin is not None:
            where = settings.admin
            admin = stack.enter_context(listener_on(where.host, where.port))
        runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        router = Serving(settings, listener, admin)
        runner.run(router.until_told(announce, complain))


@dataclass(frozen=True, slots=True)
class Serving:
    """A router to be, with the sockets that it will listen on."""

    settings: RouterSettings
    listener: socket.socket
    admin: socket.socket | None

    async def until_told(self, announce: Callable[[str], None], complain: Complain) -> None:
        """Serve until SIGINT or SIGTERM."""
        told: asyncio.Queue[int] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, told.put_nowait, number)
        router = Router(self.settings, complain)
        loop.add_signal_handler(signal.SIGHUP, router.edge.reload_keys)
        await router.start(self.listener)
        if self.admin is not None and self.settings.admin is not None:
            await router.start_admin(self.admin, self.settings.admin.keys)
        gc.freeze()  # the collector need not go through the compiler's objects again and again
        announce(self._said())
        await told.get()
        await _stop_or_be_told_again(router, told)

    def _said(self) -> str:
        own = url_of(self.listener, self.settings.tls)
        return own if self.admin is None else f"{own}; admin on {url_of(self.admin)}"


def url_of(listener: socket.socket, tls: ssl.SSLContext | None = None) -> str:
    """Where the socket listens."""
    host, port = listener.getsockname()[:2]
    scheme = "http" if tls is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


async def _stop_or_be_told_again(router: Router, told: asyncio.Queue[int]) -> None:
    """Let requests in flight end; a second signal ends that."""
    stopping = asyncio.ensure_future(router.stop())
    again = asyncio.ensure_future(told.get())
    await asyncio.wait((stopping, again), return_when=asyncio.FIRST_COMPLETED)
    if again.done():
        stopping.cancel()
        await asyncio.wait((stopping,))
        await router.stop(drain_s=0.0)
    again.cancel()
