"""The router: its parts put together, started, and stopped with its log complete."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from pointsman.core.errors import InputError
from pointsman.dispatch.dispatcher import Dispatcher, Memory
from pointsman.dispatch.homes import Homes
from pointsman.dispatch.log_writer import DecisionLog
from pointsman.dispatch.prefix_index import PrefixIndex
from pointsman.dispatch.record import OK, Snapshot
from pointsman.dispatch.snapshot import snapshot_of
from pointsman.router.admin import Admin
from pointsman.router.admission import Admission
from pointsman.router.api_keys import ApiKeys
from pointsman.router.client import ClientConnection, Serve
from pointsman.router.discovery import Discovery, Names
from pointsman.router.edge import Complain, Connection, Edge, EdgeLimits
from pointsman.router.engines import Engines
from pointsman.router.exchange import Exchange
from pointsman.router.kv_following import follow
from pointsman.router.listening import BACKLOG
from pointsman.router.membership import Means, Membership, Replica
from pointsman.router.models import ModelTable
from pointsman.router.outbox import Outbox
from pointsman.router.pairing import Pairing
from pointsman.router.pool import connect_over_tcp
from pointsman.router.probes import Prober
from pointsman.router.prometheus.counters import RouterCounters
from pointsman.router.prompt import QuestionReader
from pointsman.router.rehearsal import compile_for, rehearse_pairs
from pointsman.router.reloading import Reloading
from pointsman.router.replica_options import ReplicaOptions
from pointsman.router.roster import Roster
from pointsman.router.router_settings import RouterSettings, head_of
from pointsman.router.status import OwnPages
from pointsman.router.ui.live_page import LivePage

FLUSH_S = 0.5
# So many more replicas find room in the index of prefixes before it is written anew with more.
PREFIX_ROOM = 32


@dataclass(frozen=True, slots=True)
class ClientSide:
    """What is done with those who connect to one listener."""

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
        pairing = settings.pairing
        started_s = time.monotonic()  # what the log says too
        self._log = _log_of(settings, complain)  # before what takes seconds: it may be refused
        compile_for(settings.rules, len(settings.replicas))
        self.resilience = settings.resilience
        slots = len(settings.replicas) + settings.spare
        self.dispatcher = _dispatcher_of(
            settings, pairing, lambda: (time.monotonic() - started_s) * 1000.0, self._log
        )
        self._settings = settings
        outbox = Outbox()
        means = Means(settings.resilience, connect=partial(connect_over_tcp, outbox=outbox))
        self.membership = Membership(settings.replicas, means, slots)
        self.membership.on_joined = self._welcome
        self.membership.on_restarted = self._forget
        self.membership.on_left = self._part_with
        self.admission = (Admission if pairing is None else pairing.admission)(
            self.dispatcher, self.membership, settings.resilience, means.clock_s
        )
        self._prober = Prober(self.membership, settings.resilience.probing)
        sessions = settings.sessions
        self.reader = QuestionReader(sessions.key, sessions.header, sessions.from_user)
        self.models = ModelTable(settings.models_interval_s)
        for number, options in enumerate(settings.options_of_replicas):
            self.models.add(number, options.address, options.models)
            self.membership[number].options = options
        self.membership.on_told = self._heed
        self.admission.barred_for = self.models.barred_for
        self.counters = RouterCounters(len(settings.replicas))
        self.dispatcher.observer = self.counters
        following = follow(
            settings.kv_events, self.dispatcher, self.counters.ended[OK].__getitem__, complain
        )
        self.engines = Engines(self.dispatcher, settings.scrape, complain, following)
        self.live: LivePage | None = None
        if settings.ui is not None:
            self.live = LivePage(self.admission, self.engines, settings.ui)
        hand_offs = None if pairing is None else pairing.counters
        self.pages = OwnPages(self.admission, self.engines, self.counters, hand_offs, self.live)
        self._exchange = Exchange(
            self.admission, self.reader, self.models, self.pages, settings.resilience.retries
        )
        if pairing is not None:
            self._exchange.forward = pairing.forward(self.membership)
        self._tls = settings.tls
        self.edge = Edge(settings.limits, settings.api_keys, complain, outbox)
        self._edges = [self.edge]  # and that of the admin API
        self._reloading = self._reloading_of(settings, complain)
        self._discovery = self._discovery_of(settings.names, complain)
        self._servers: list[asyncio.Server] = []
        self._flusher: asyncio.TimerHandle | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    def _reloading_of(self, settings: RouterSettings, complain: Complain) -> Reloading | None:
        if settings.config is None:
            return None
        found = () if settings.names is None else settings.names.found
        named = [options for options in settings.options_of_replicas if options not in found]
        return Reloading(settings.config, Roster(self.membership, named, complain), complain)

    def _discovery_of(self, names: Names | None, complain: Complain) -> Discovery | None:
        if names is None:
            return None
        return Discovery(names, Roster(self.membership, names.found, complain), complain)

    async def start(self, listener: socket.socket | None) -> None:
        """Serve whoever connects to the listener; without one, requests come in another way.

        Raises MachineError where an endpoint for KV events cannot be had.
        """
        self.engines.start()
        if listener is not None:
            await self._listen(listener, ClientSide(self._exchange.serve, self.edge, self._tls))
        self.models.start()
        self._flush()
        self._sweep()
        self._prober.start()
        for replica in self.membership.members:
            self.engines.watch(replica)
        if self._reloading is not None:
            self._reloading.start()
        if self._discovery is not None:
            self._discovery.start()

    def reload(self) -> None:
        """Read the files of keys and of configuration again; where the log was moved, go on in a
        new one."""
        for edge in self._edges:
            edge.reload_keys()
        if self._log is not None:
            self._log.reopen_if_moved(self._snapshot)
        if self._reloading is not None:
            self._reloading.reload()

    async def start_admin(self, listener: socket.socket, keys: ApiKeys | None) -> None:
        """Serve the admin API to whoever connects to this listener."""
        edge = Edge(EdgeLimits(), keys, self.edge.complain)
        self._edges.append(edge)
        await self._listen(listener, ClientSide(Admin(self.membership).serve, edge))

    async def start_pages(self, listener: socket.socket) -> None:
        """Serve the router's own pages, and nothing else, to whoever connects to this listener."""
        edge = Edge(EdgeLimits(), None, self.edge.complain)
        self._edges.append(edge)
        await self._listen(listener, ClientSide(self.pages.serve, edge))

    async def _listen(self, listener: socket.socket, front: ClientSide) -> None:
        server = await asyncio.get_running_loop().create_server(
            lambda: ClientConnection(front.serve, front.edge),
            sock=listener,
            backlog=BACKLOG,  # else it is set to 100
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
            drain_s = self.resilience.drain_ms / 1000.0
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
        if self._reloading is not None:
            self._reloading.stop()
        if self._discovery is not None:
            self._discovery.stop()
        if self.live is not None:
            self.live.close()
        self._prober.stop()
        self.models.close()
        await self.engines.close()
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

    def _snapshot(self) -> Snapshot:
        return snapshot_of(self.dispatcher.ledger, self.dispatcher.clock_ms())

    def _flush(self) -> None:
        if self._log is not None:
            self._log.rotate_if_full(self._snapshot)
            self._flusher = asyncio.get_running_loop().call_later(FLUSH_S, self._flush)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self.membership.check(loop.time())
        self.admission.check(loop.time())
        self.engines.check()
        self.models.keep(self.membership.ids)
        self._sweeper = loop.call_later(self.resilience.sweep_s, self._sweep)

    def _forget(self, replica: Replica) -> None:
        """It holds no prefixes any more, and may serve other models."""
        self.dispatcher.prefixes.forget(replica.number)
        self.engines.forget(replica)
        self.models.forget(replica.number)

    def _part_with(self, replica: Replica) -> None:
        self.models.keep(self.membership.ids)
        self.engines.unwatch(replica)

    def _heed(self, replica: Replica, before: ReplicaOptions) -> None:
        """Other options hold for it."""
        options = replica.options
        if options.models != before.models:
            self.models.add(replica.number, options.address, options.models)
        if options.metrics != before.metrics:
            self.engines.unwatch(replica)
            self.engines.watch(replica)

    def _welcome(self, replica: Replica) -> None:
        options = replica.options
        number = self.dispatcher.join(replica.url, self._settings.facts_of(options))
        assert number == replica.number, "replicas are numbered alike everywhere"
        if number == self.dispatcher.prefixes.replicas:
            self.dispatcher.prefixes.add_replica()
        self.models.add(number, options.address, options.models)
        self.counters.add_replica()
        self.engines.watch(replica)
        self._prober.watch(replica)


def _memory_of(settings: RouterSettings, slots: int) -> Memory:
    room = len(settings.replicas) + min(settings.spare, PREFIX_ROOM)
    followed = () if settings.kv_events is None else settings.kv_events.replicas
    prefixes = PrefixIndex(room, settings.prefix_index_bytes, followed)
    return Memory(slots, prefixes, Homes(ttl_ms=settings.sessions.ttl_ms))


def _log_of(settings: RouterSettings, complain: Complain) -> DecisionLog | None:
    """None where none is asked for. To delete a file of some hundred MiB takes 20 ms and more:
    that is done in a thread."""
    if settings.log_path is None:
        return None
    aside = partial(asyncio.get_running_loop().run_in_executor, None)
    return DecisionLog(settings.log_path, head_of(settings), complain, settings.log_rotation, aside)


def _dispatcher_of(
    settings: RouterSettings,
    pairing: Pairing | None,
    clock_ms: Callable[[], float],
    log: DecisionLog | None,
) -> Dispatcher:
    rules, facts = settings.rules, settings.facts_of_replicas
    memory = _memory_of(settings, len(facts) + settings.spare)
    if pairing is None:
        return Dispatcher(rules, facts, clock_ms, log, memory)
    rehearse_pairs(rules)
    return pairing.dispatcher(rules, facts, clock_ms, log, memory)
