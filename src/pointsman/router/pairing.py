"""The parts of a router that are other ones where prefill and decode are apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pointsman.core.errors import InputError
from pointsman.dispatch.dispatcher import DecisionSink, Dispatcher, Memory, Rules
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.pair_dispatcher import PairDispatcher, PairFleet
from pointsman.dispatch.pair_ledger import Pairs, pairs_of
from pointsman.router.admission import Admission
from pointsman.router.handoff.protocol import HandOffProtocol
from pointsman.router.handoff.protocols import HandOffSettings
from pointsman.router.membership import Membership
from pointsman.router.pair_admission import PairAdmission, Roles
from pointsman.router.pair_forward import PairForward
from pointsman.router.prometheus.pair_counters import PairCounters
from pointsman.router.replica_options import DECODE, PREFILL, ReplicaOptions
from pointsman.router.settings import Resilience


@dataclass(frozen=True, slots=True)
class Pairing:
    """Which replicas make pairs, and how they hand over."""

    settings: HandOffSettings
    protocol: HandOffProtocol
    roles: Roles
    pairs: Pairs
    counters: PairCounters = field(repr=False)

    @classmethod
    def of(cls, settings: HandOffSettings, options: Sequence[ReplicaOptions]) -> Pairing:
        """Of these replicas. Raises InputError where one has no role, or a role is nobody's."""
        check_roles(options)
        protocol = settings.protocol()
        numbers = {
            role: [number for number, each in enumerate(options) if each.role == role]
            for role in (PREFILL, DECODE)
        }
        prefills, decodes = numbers[PREFILL], numbers[DECODE]
        pairs = Pairs(pairs_of(prefills, decodes), protocol.moves_all)
        urls = [
            (options[p].address.url, options[d].address.url)
            for p, d in pairs.numbered
            if d is not None
        ]
        roles = Roles(frozenset(prefills), frozenset(decodes), protocol.decodes_alone)
        return cls(settings, protocol, roles, pairs, PairCounters(urls))

    def dispatcher(
        self,
        rules: Rules,
        facts: Sequence[ReplicaFacts],
        clock_ms: Callable[[], float],
        log: DecisionSink | None,
        memory: Memory | None = None,
    ) -> PairDispatcher:
        """One that chooses among these pairs."""
        made = PairDispatcher(rules, PairFleet(facts, self.pairs), clock_ms, log, memory)
        made.pair_observer = self.counters
        return made

    def admission(
        self,
        dispatcher: Dispatcher,
        membership: Membership,
        resilience: Resilience,
        clock_s: Callable[[], float],
    ) -> Admission:
        """The one that asks that dispatcher. Raises InputError where requests are to be held."""
        assert isinstance(dispatcher, PairDispatcher)
        if resilience.holding.rules is not None:
            raise InputError("--hold-ms: does not go with --prefill and --decode; expected one")
        return PairAdmission(dispatcher, membership, resilience, clock_s, self.roles)

    def forward(self, membership: Membership) -> PairForward:
        """What gets requests over these pairs."""
        return PairForward(self.protocol, membership, self.settings.timeout_ms)


def check_roles(options: Sequence[ReplicaOptions]) -> None:
    """Raises InputError where one has no role, or a role is nobody's."""
    for each in options:
        if each.role is None:
            raise InputError(
                f"replica {each.address.url} has no role; expected --prefill or --decode"
                " (role in a file) of all replicas where --handoff is given"
            )
    for role in (PREFILL, DECODE):
        if all(each.role != role for each in options):
            raise InputError(f"serve: no {role} replica; expected at least one --{role} URL")
