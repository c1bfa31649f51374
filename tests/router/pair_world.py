"""A router of pairs without sockets: as ``World``, over two prefill and two decode replicas."""

from __future__ import annotations

import asyncio

from pointsman.dispatch.dispatcher import Rules
from pointsman.dispatch.record import FellBack, HandedOff, Prefilled
from pointsman.policies.catalogue import policy_named
from pointsman.router.edge import Edge, EdgeLimits
from pointsman.router.engines import Engines
from pointsman.router.exchange import Exchange
from pointsman.router.handoff.protocols import HandOffSettings
from pointsman.router.membership import Means, Membership
from pointsman.router.models import ModelTable
from pointsman.router.pairing import Pairing
from pointsman.router.prometheus.counters import RouterCounters
from pointsman.router.prompt import QuestionReader
from pointsman.router.replica_options import DECODE, PREFILL, ReplicaOptions
from pointsman.router.settings import Resilience
from pointsman.router.status import OwnPages
from pointsman.router.upstream import replica_address
from tests.router.in_memory import ANY, Lines, Wire, World


class PairLines(Lines):
    """What comes of hand-offs has a choice too, comes before its end, and each kind once."""

    def __init__(self) -> None:
        super().__init__()
        self.told: set[tuple[int, type]] = set()

    def write(self, line) -> None:
        if not isinstance(line, Prefilled | HandedOff | FellBack):
            super().write(line)
            return
        assert line.sequence in self.choices, "of no choice"
        assert line.sequence not in self.outcomes, "after its end"
        assert (line.sequence, type(line)) not in self.told, "twice"
        self.told.add((line.sequence, type(line)))
        assert not {(line.sequence, HandedOff), (line.sequence, FellBack)} <= self.told


class PairWorld(World):
    """Replicas 0 and 1 compute prompts, 2 and 3 generate."""

    def __init__(self, handoff: str, resilience: Resilience) -> None:
        loop = asyncio.get_running_loop()
        self.log = PairLines()
        self.upstreams: list[Wire] = []
        self.refuses = False
        self.gate = None
        self.complaints: list[str] = []
        self.edge = Edge(EdgeLimits(), None, self.complaints.append)
        roles = [PREFILL, PREFILL, DECODE, DECODE]
        addresses = [replica_address(f"http://{name}") for name in "abcd"]
        options = [
            ReplicaOptions(address, role=role)
            for address, role in zip(addresses, roles, strict=True)
        ]
        self.pairing = Pairing.of(HandOffSettings(handoff), options)
        self.dispatcher = self.pairing.dispatcher(
            Rules(policy_named("round_robin")), [ANY] * 4, lambda: loop.time() * 1000.0, self.log
        )
        self.membership = Membership(addresses, Means(resilience, loop.time, self._connect), 4)
        models = ModelTable(0.0)
        for number, each in enumerate(options):
            self.membership[number].options = each
            models.add(number, each.address, ())
        self.admission = self.pairing.admission(
            self.dispatcher, self.membership, resilience, loop.time
        )
        counters = RouterCounters(4)
        self.dispatcher.observer = counters
        engines = Engines(self.dispatcher, None, self.complaints.append)
        pages = OwnPages(self.admission, engines, counters, self.pairing.counters)
        reader = QuestionReader(session_key=bytes(16))
        self._exchange = Exchange(self.admission, reader, models, pages, resilience.retries)
        self._exchange.forward = self.pairing.forward(self.membership)

    @property
    def busy(self) -> list[Wire]:
        """Connections on which a replica has a request that it has not answered."""
        return [
            wire
            for wire in self.upstreams
            if wire.is_open and wire.protocol._sink is not None and wire.sent
        ]

    def check_over(self) -> None:
        super().check_over()
        for slots in getattr(self.pairing.protocol, "_slots", {}).values():
            assert len(slots.free) == 2, "a slot is never given back"
