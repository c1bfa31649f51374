"""Replicas in virtual time behind a router's own admission, one prefill after the other each.

A prompt token takes 1 ms, nothing else takes any time, and all of it is known to the router: so
that what is held, and until when, can be worked out by hand, and is what the simulator does.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pointsman.costs.iteration import IterationCosts
from pointsman.dispatch.dispatcher import Dispatcher, Ending, Question, Rules
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.log_writer import DecisionLog
from pointsman.dispatch.prefix_index import Chain
from pointsman.dispatch.record import Usage
from pointsman.policies.catalogue import policy_named
from pointsman.policies.policy import Policy, policy
from pointsman.router.admission import Admission, Place
from pointsman.router.asked import Asked, RefusedError
from pointsman.router.membership import Means, Membership
from pointsman.router.replica_options import ReplicaOptions
from pointsman.router.router_settings import RouterSettings, head_of
from pointsman.router.settings import Holding, Resilience
from pointsman.router.upstream import replica_address

FACTS = ReplicaFacts(IterationCosts(0.0, 1.0, 0.0, 0.0))
END, TIMER, CALL = range(3)  # what comes first of what happens at one instant
TURNS = 12  # of the event loop; more than anything here needs


@policy(rule="the first", source="-", reasons=("first",))
def the_first(request, view, parameters):
    return 0, 0


@dataclass(frozen=True)
class Arrival:
    """A request. ``answer_ms``: from its first token to its end."""

    time_ms: float
    tokens: int
    answer_ms: float = 0.0
    streams: bool = True
    blocks: tuple[int, ...] = ()
    session: str | None = None
    tried: frozenset[int] = frozenset()


def holding_nobody() -> Holding:
    """Requests wait for a replica that is ready and has room, and for no other reason."""
    return Holding(timeout_ms=1e6)


def rows(*given: tuple[float, int]) -> list[Arrival]:
    return [Arrival(*each) for each in given]


@dataclass
class Timer:
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


@dataclass
class HeldFleet:
    """``sent``: (number, replica, instant) in the order of dispatch; ``finish_ms`` by number."""

    choose: Policy | str = the_first
    replicas: int = 1
    holding: Holding = field(default_factory=lambda: Holding(wait_ms=0.0, timeout_ms=1e6))
    max_in_flight: int | None = None
    log: Path | None = None
    facts: Sequence[ReplicaFacts] = (FACTS,) * 3
    now_ms: float = 0.0
    sent: list[tuple[int, int, float]] = field(default_factory=list)
    finish_ms: dict[int, float] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        chosen = policy_named(self.choose) if isinstance(self.choose, str) else self.choose
        addresses = [replica_address(f"http://r{number}") for number in range(self.replicas)]
        resilience = Resilience(holding=self.holding, max_in_flight=self.max_in_flight)
        rules, name = Rules(chosen, seed=3), str(self.choose)
        facts = self.facts[: self.replicas]
        options = [
            ReplicaOptions(address, facts=known)
            for address, known in zip(addresses, facts, strict=True)
        ]
        settings = RouterSettings(addresses, rules, name, options=options, resilience=resilience)
        self.sink = None if self.log is None else DecisionLog(self.log, head_of(settings), print)
        clock_ms: Callable[[], float] = lambda: self.now_ms  # noqa: E731
        self.dispatcher = Dispatcher(rules, facts, clock_ms, self.sink)
        means = Means(resilience, lambda: self.now_ms / 1000.0)
        self.membership = Membership(addresses, means, self.replicas)
        self.admission = Admission(
            self.dispatcher, self.membership, resilience, means.clock_s, self._later
        )
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self._free_ms = [0.0] * self.replicas
        self._events: list[tuple[float, int, int, Callable[[], None], Timer]] = []
        self._count = 0

    def at(self, time_ms: float, what: Callable[[], Any], kind: int = CALL) -> Timer:
        """Let something happen at an instant."""
        timer = Timer()
        self._count += 1
        heapq.heappush(self._events, (time_ms, kind, self._count, what, timer))
        return timer

    def leave(self, number: int) -> None:
        """The client of a request leaves, if it has come."""
        if number in self.tasks:
            self.tasks[number].cancel()

    def run(self, arrivals: Sequence[Arrival], until_ms: float = float("inf")) -> HeldFleet:
        """All that happens until then; with nothing left behind, where all of it is awaited."""
        asyncio.run(self._run(arrivals, until_ms))
        return self

    async def _run(self, arrivals: Iterable[Arrival], until_ms: float) -> None:
        for number, arrival in enumerate(arrivals):
            self.at(arrival.time_ms, lambda n=number, a=arrival: self._arrive(n, a))
        while self._events and self._events[0][0] <= until_ms:
            time_ms, _, _, what, timer = heapq.heappop(self._events)
            if not timer.is_cancelled:
                self.now_ms = time_ms
                what()
                for _ in range(TURNS):
                    await asyncio.sleep(0)
                self.check()
        if until_ms == float("inf"):
            self.check_over()
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        if self.sink is not None:
            self.sink.close()

    def check(self) -> None:
        """Whoever waits for a replica counts there, and nobody else."""
        self.dispatcher.ledger.check_invariants()
        counts = sum(self.dispatcher.ledger.held_for(r) for r in range(self.replicas))
        assert counts <= self.admission.held

    def check_over(self) -> None:
        """Nothing is left."""
        self.check()
        assert (self.admission.held, self.admission.held_bytes) == (0, 0)
        assert self.dispatcher.ledger.in_flight == 0

    def _later(self, delay_s: float, callback: Callable[[], None]) -> Any:
        return self.at(round(self.now_ms + 1000.0 * delay_s, 9), callback, TIMER)

    def _arrive(self, number: int, arrival: Arrival) -> None:
        ends = range(1, len(arrival.blocks) + 1)
        chain = Chain([hash(arrival.blocks[:end]) % 2**63 for end in ends], 8)
        question = Question(
            str(number),
            "/v1/completions",
            arrival.tokens,
            16,
            chain,
            arrival.session,
            streams=arrival.streams,
        )
        asked = Asked(question, 1, set(arrival.tried))
        self.tasks[number] = asyncio.ensure_future(self._serve(number, arrival, asked))

    async def _serve(self, number: int, arrival: Arrival, asked: Asked) -> None:
        try:
            place = await self.admission.place(asked)
        except RefusedError as refused:
            self.refused[number] = refused.code
            return
        r = place.ticket.replica
        self.sent.append((number, r, self.now_ms))
        self._free_ms[r] = max(self.now_ms, self._free_ms[r]) + arrival.tokens * (
            self.facts[r].costs.per_prefill_token_ms
        )
        if arrival.streams:
            self.at(self._free_ms[r], place.ticket.first_token, END)
        self.at(self._free_ms[r] + arrival.answer_ms, lambda: self._end(number, place), END)

    def _end(self, number: int, place: Place) -> None:
        self.finish_ms[number] = self.now_ms
        place.end(Ending("ok", 200, Usage(None, 1, None)))

    @property
    def order(self) -> list[int]:
        return [number for number, _, _ in self.sent]

    @property
    def sent_ms(self) -> list[float]:
        """By number."""
        return [time_ms for _, _, time_ms in sorted(self.sent)]

    @property
    def replica_of(self) -> list[int]:
        """By number."""
        return [replica for _, replica, _ in sorted(self.sent)]
