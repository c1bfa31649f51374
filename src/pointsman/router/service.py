"""The router as a process: starts, listens, and stops with its log complete."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import math
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
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
from pointsman.router.admission import Admission
from pointsman.router.api_keys import ApiKeys
from pointsman.router.client import ClientConnection
from pointsman.router.edge import Complain, Edge, EdgeLimits
from pointsman.router.exchange import Exchange
from pointsman.router.membership import SPARE_SLOTS, Means, Membership, Replica
from pointsman.router.probes import Prober
from pointsman.router.prompt import BLOCK_TOKENS, QuestionReader
from pointsman.router.settings import Resilience
from pointsman.router.upstream import ReplicaAddress

FLUSH_S = 0.5
BACKLOG = 1024  # connections that wait to be taken; one more waits a second to try again


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """What a router is started with.

    ``policy_name`` is how the log names the policy, ``policy_sha256`` the digest of its file.
    ``spare_slots``: how many replicas may be added while it runs.
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
        self.admission = Admission(
            self.dispatcher, self.membership, settings.resilience, means.clock_s
        )
        self._prober = Prober(self.membership, settings.resilience.probing)
        reader = QuestionReader(session_key=os.urandom(16))
        self._exchange = Exchange(self.admission, reader, settings.resilience.retries)
        self.edge = Edge(settings.limits, settings.api_keys, complain)
        self._server: asyncio.Server | None = None
        self._flusher: asyncio.TimerHandle | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    async def start(self, listener: socket.socket) -> None:
        """Serve whoever connects to the listener."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: ClientConnection(self._exchange.serve, self.edge),
            sock=listener,
            backlog=BACKLOG,  # else it is set to 100
        )
        self.edge.start()
        self._flush()
        self._sweep()
        self._prober.start()

    async def stop(self, drain_s: float | None = None) -> None:
        """Accept no more, let what is in flight end for a while, then cut it off.

        Cancelled, it has accepted no more; called again with 0, it does the rest.
        """
        if drain_s is None:
            drain_s = self._resilience.drain_ms / 1000.0
        if self._server is not None:
            self._server.close()
        for connection in list(self.edge.connections):
            connection.close_when_idle()
        await self._wait_for_clients(drain_s)
        for connection in list(self.edge.connections):
            connection.abort()
        await self._wait_for_clients(drain_s=1.0)
        self.edge.stop()
        self._prober.stop()
        self.membership.close()
        for timer in (self._flusher, self._sweeper):
            if timer is not None:
                timer.cancel()
        if self._log is not None:
            self._log.close()

    async def _wait_for_clients(self, drain_s: float) -> None:
        deadline_s = time.monotonic() + drain_s
        while self.edge.connections or self.dispatcher.ledger.in_flight:
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
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
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
    listener = listener_on(settings.host, settings.port)
    with listener, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve_until_told(settings, listener, announce, complain))


async def _serve_until_told(
    settings: RouterSettings,
    listener: socket.socket,
    announce: Callable[[str], None],
    complain: Complain,
) -> None:
    told: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told.put_nowait, number)
    router = Router(settings, complain)
    loop.add_signal_handler(signal.SIGHUP, router.edge.reload_keys)
    await router.start(listener)
    gc.freeze()  # the collector need not go through the compiler's objects again and again
    host, port = listener.getsockname()[:2]
    announce(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
    await told.get()
    await _stop_or_be_told_again(router, told)


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
