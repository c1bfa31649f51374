"""A router without sockets: connections are objects, and bytes move when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from pointsman.dispatch.dispatcher import DecisionSink, Dispatcher, Rules
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.record import Choice, FirstToken, Held, Outcome, Unplaced
from pointsman.policies.catalogue import policy_named
from pointsman.router.admission import Admission
from pointsman.router.client import ClientConnection
from pointsman.router.edge import Edge, EdgeLimits
from pointsman.router.engines import Engines
from pointsman.router.exchange import Exchange
from pointsman.router.membership import Means, Membership
from pointsman.router.models import ModelTable
from pointsman.router.prometheus.counters import RouterCounters
from pointsman.router.prompt import QuestionReader
from pointsman.router.settings import Resilience
from pointsman.router.status import OwnPages
from pointsman.router.upstream import ReplicaAddress, Upstream, replica_address

# More than any of our tasks needs to get from one wait to the next.
STEPS = 12

ANY = ReplicaFacts()


class Wire(asyncio.Transport):
    """The router's end of a connection; ``sent`` is what the router wrote to it."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.protocol = protocol
        self.sent = bytearray()
        self.is_open = True
        protocol.connection_made(self)

    def write(self, data: bytes) -> None:
        if self.is_open:
            self.sent += data

    def is_closing(self) -> bool:
        return not self.is_open

    def close(self) -> None:
        self.lose(None)

    abort = close

    def lose(self, error: Exception | None) -> None:
        """The connection ends; the protocol hears of it a little later, as from a real loop."""
        if self.is_open:
            self.is_open = False
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, error)

    def lose_now(self) -> None:
        """The connection ends in the same turn of the loop as what was called before."""
        self.is_open = False
        self.protocol.connection_lost(None)

    def receive(self, data: bytes) -> None:
        """Bytes from the other side."""
        if self.is_open and data:
            self.protocol.data_received(data)

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def write_eof(self) -> None:
        pass


@dataclass
class Lines(DecisionSink):
    """The decision log, checked line by line: what comes has a choice, and comes once."""

    choices: dict[int, Choice] = field(default_factory=dict)
    first_tokens: dict[int, FirstToken] = field(default_factory=dict)
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    held: set[int] = field(default_factory=set)  # that no line has ended
    unplaced: list[Unplaced] = field(default_factory=list)

    def write(self, line: Choice | Held | Unplaced | FirstToken | Outcome) -> None:
        if isinstance(line, Choice | Held | Unplaced) and line.after is not None:
            self.held.remove(line.after)
        if isinstance(line, Held):
            self.held.add(line.sequence)
        elif isinstance(line, Unplaced):
            self.unplaced.append(line)
        else:
            self._write_sent(line)

    def _write_sent(self, line: Choice | FirstToken | Outcome) -> None:
        assert line.sequence not in self.outcomes, "after its end"
        kept = {Choice: self.choices, FirstToken: self.first_tokens, Outcome: self.outcomes}[
            type(line)
        ]
        assert line.sequence not in kept, "twice"
        assert line.sequence in self.choices or kept is self.choices, "of no choice"
        kept[line.sequence] = line


class World:
    """A router over two replicas. ``upstreams``: every connection to them, in order."""

    def __init__(self, resilience: Resilience, facts: ReplicaFacts = ANY) -> None:
        loop = asyncio.get_running_loop()
        self.log = Lines()
        self.upstreams: list[Wire] = []
        self.refuses = False
        self.gate: asyncio.Event | None = None  # connects wait for it
        self.complaints: list[str] = []
        self.edge = Edge(EdgeLimits(), None, self.complaints.append)
        rules = Rules(policy_named("round_robin"))
        self.dispatcher = Dispatcher(rules, [facts] * 2, lambda: loop.time() * 1000.0, self.log)
        addresses = [replica_address("http://a"), replica_address("http://b")]
        means = Means(resilience, loop.time, self._connect)
        self.membership = Membership(addresses, means, slots=2)
        self.admission = Admission(self.dispatcher, self.membership, resilience, loop.time)
        reader = QuestionReader(session_key=bytes(16))
        models = ModelTable(0.0)
        for number, address in enumerate(addresses):
            models.add(number, address, ())
        counters = RouterCounters(2)
        self.dispatcher.observer = counters
        engines = Engines(self.dispatcher, None, self.complaints.append)
        pages = OwnPages(self.admission, engines, counters)
        self._exchange = Exchange(self.admission, reader, models, pages, resilience.retries)

    async def _connect(self, address: ReplicaAddress) -> Upstream:
        if self.gate is not None:
            await self.gate.wait()
        if self.refuses:
            raise ConnectionRefusedError(111, "Connection refused")
        made = Upstream(address)
        self.upstreams.append(Wire(made))
        return made

    def client(self) -> Wire:
        """A client that has connected."""
        return Wire(ClientConnection(self._exchange.serve, self.edge))

    async def settle(self, until: Callable[[], bool] = lambda: False) -> None:
        """Let everything happen that can, with the accounts right at every step."""
        for _ in range(STEPS):
            if until():
                return
            await asyncio.sleep(0)
            self.check()

    def check(self) -> None:
        """Counts are never negative, and both accounts of what is in flight are one."""
        self.dispatcher.ledger.check_invariants()
        counts = [member.in_flight for member in self.membership.members]
        assert counts == self.dispatcher.ledger.requests.tolist()
        held_for = sum(self.dispatcher.ledger.held_for(member) for member in range(2))
        assert held_for == len(self.log.held) <= self.admission.held

    def check_over(self) -> None:
        """Nothing is left: no count, no held request, no orphan, and an outcome a choice."""
        self.check()
        assert self.dispatcher.ledger.in_flight == 0
        assert (self.admission.held, self.admission.held_bytes) == (0, 0)
        assert self.edge.outbox.served == 0
        assert self.log.outcomes.keys() == self.log.choices.keys()
        assert self.log.held == set()
        assert self.complaints == []
        kept = {id(kept) for member in self.membership.members for kept in member.pool.idle}
        for wire in self.upstreams:
            assert not wire.is_open or id(wire.protocol) in kept, "an orphan"
