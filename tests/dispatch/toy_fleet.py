"""A fleet in virtual time behind real dispatchers: one prefill at a time, answers beside it.

It is no engine: what is shown with it is what the router's choices do, learned or not, where
everything else is known exactly.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from pointsman.dispatch.dispatcher import Dispatcher, Ending, Question, Rules, Ticket
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.prefix_index import Chain
from pointsman.dispatch.record import Usage
from pointsman.policies.catalogue import policy_named

BLOCK_TOKENS = 64
MS_A_TOKEN = 0.05


@dataclass(frozen=True)
class Arrival:
    """A request: its blocks of 64 tokens, and how long its answer takes after its first token."""

    time_ms: float
    blocks: tuple[int, ...]
    answer_ms: float = 500.0
    session: str | None = None


@dataclass
class Served:
    """What became of it. ``wait_ms``: until its prefill began, ``expected_ms``: as it was told."""

    replica: int
    wait_ms: float
    expected_ms: float
    hit_blocks: int


@dataclass
class ToyFleet:
    """``slowness``: of each replica, how many times longer its prefills take than is expected.

    ``copies`` of the router know nothing of each other; requests come to any of them at random.
    """

    policy: str
    slowness: tuple[float, ...]
    copies: int = 1
    seen: list[set[tuple[int, ...]]] = field(init=False)
    served: list[Served] = field(default_factory=list)
    now_ms: float = 0.0

    def __post_init__(self) -> None:
        facts = [ReplicaFacts()] * len(self.slowness)
        rules = Rules(policy_named(self.policy))
        self.dispatchers = [
            Dispatcher(rules, facts, lambda: self.now_ms) for _ in range(self.copies)
        ]
        self._dealing = random.Random(7)
        self.seen = [set() for _ in self.slowness]
        self._free_ms = [0.0] * len(self.slowness)
        self._events: list[tuple[float, int, str, Ticket]] = []

    def run(self, arrivals: Iterable[Arrival]) -> list[Served]:
        for number, arrival in enumerate(arrivals):
            self._pass_time(arrival.time_ms)
            self._send(number, arrival)
        self._pass_time(float("inf"))
        for dispatcher in self.dispatchers:
            dispatcher.ledger.check_invariants()
            assert dispatcher.ledger.in_flight == 0
        return self.served

    def _send(self, number: int, arrival: Arrival) -> None:
        tokens = BLOCK_TOKENS * len(arrival.blocks)
        chain = Chain([hash(arrival.blocks[: k + 1]) % 2**63 for k in range(len(arrival.blocks))])
        chain = Chain(chain.hashes, BLOCK_TOKENS)
        question = Question(
            str(number),
            prompt_tokens=tokens,
            chain=chain,
            session=arrival.session,
            streams=True,
        )
        ticket = self._dealing.choice(self.dispatchers).choose(question)
        r = ticket.replica
        hits = 0
        while hits < len(arrival.blocks) and arrival.blocks[: hits + 1] in self.seen[r]:
            hits += 1
        self.seen[r].update(arrival.blocks[: k + 1] for k in range(len(arrival.blocks)))
        begins_ms = max(self.now_ms, self._free_ms[r])
        uncached = max(1, tokens - BLOCK_TOKENS * hits)
        self._free_ms[r] = begins_ms + uncached * MS_A_TOKEN * self.slowness[r]
        self.served.append(Served(r, begins_ms - self.now_ms, ticket.chosen.expected_wait_ms, hits))
        heapq.heappush(self._events, (self._free_ms[r], number, "first", ticket))
        ended_ms = self._free_ms[r] + arrival.answer_ms
        heapq.heappush(self._events, (ended_ms, number, "end", ticket))

    def _pass_time(self, until_ms: float) -> None:
        while self._events and self._events[0][0] <= until_ms:
            self.now_ms, _, kind, ticket = heapq.heappop(self._events)
            if kind == "first":
                ticket.first_token()
            else:
                ticket.end(Ending(status="ok", usage=Usage(output_tokens=64)))
        if until_ms < float("inf"):
            self.now_ms = until_ms
