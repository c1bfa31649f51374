"""Where a request gets its place on a replica: at once, or after a wait in the router.

It waits while no replica that serves its model is ready, or all of those are full; first come,
first served, so many, so large and so long at most. Who waits is asked about anew, through the
policy, when a place may be free.

A line for each model, so that nobody waits behind one whose model nobody serves just now. Where
replicas serve several models, who came first goes first.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from pointsman.core.errors import PointsmanError
from pointsman.dispatch.dispatcher import Dispatcher, Ending, Question, Ticket
from pointsman.router.membership import Membership, Replica
from pointsman.router.settings import Resilience


class RefusedError(PointsmanError):
    """There is no place, and no more waiting for one."""

    def __init__(self, message: str, http_status: int, code: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.http_status = http_status
        self.code = code
        self.retry_after_s = retry_after_s


@dataclass(slots=True, eq=False)
class Asked:
    """A request that wants a place: ``tried`` are the replicas that it is not to get again."""

    question: Question
    size_bytes: int
    tried: set[int] = field(default_factory=set)
    held_until_s: float | None = None  # None: it has never waited
    turn: int = 0  # the lower goes first, once it has waited

    @property
    def line(self) -> str | None:
        """Whom it waits behind: those of the same model."""
        return self.question.model


class Place:
    """A choice, and the count of it on its replica, until ``end``: exactly once."""

    __slots__ = ("_is_over", "_membership", "replica", "ticket")

    def __init__(self, ticket: Ticket, membership: Membership) -> None:
        self.ticket = ticket
        self.replica: Replica = membership.sent(ticket.replica)
        self._membership = membership
        self._is_over = False

    def end(self, ending: Ending) -> None:
        """Give it back; calls after the first do nothing."""
        if not self._is_over:
            self._is_over = True
            self.ticket.end(ending)
            self._membership.ended(self.replica)


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    asked: Asked
    place: asyncio.Future[Place]


class Admission:
    """Asks the dispatcher for one request after the other, and holds those it cannot ask for.

    ``barred_for``: the replicas that a request for this model is not to get.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        membership: Membership,
        resilience: Resilience,
        clock_s: Callable[[], float],
    ) -> None:
        self.dispatcher = dispatcher
        self.membership = membership
        self.barred_for: Callable[[str | None], set[int]] = lambda model: set()
        self.held_bytes = 0
        self.refused = 0
        self._resilience = resilience
        self._clock_s = clock_s
        self._lines: dict[str | None, OrderedDict[_Held, None]] = {}  # none of them empty
        self._turns = 0
        membership.on_opening = self.let_in

    @property
    def held(self) -> int:
        """How many requests wait."""
        return sum(map(len, self._lines.values()))

    def ready_for(self, question: Question) -> list[int]:
        """The replicas that are ready and serve its model."""
        barred = self.barred_for(question.model)
        return [number for number in self.membership.ready if number not in barred]

    async def place(self, asked: Asked) -> Place:
        """A place for the request. Raises RefusedError where it can have none, nor wait longer."""
        if asked.line not in self._lines:
            place = self._place_now(asked)
            if place is not None:
                return place
        return await self._counted_wait(asked)

    async def _counted_wait(self, asked: Asked) -> Place:
        observer, begun_s = self.dispatcher.observer, self._clock_s()
        try:
            place = await self._wait(asked)
        except RefusedError as refused:
            if observer is not None:
                observer.observe_shed(refused.code)
            raise
        if observer is not None:
            observer.observe_release(1000.0 * (self._clock_s() - begun_s))
        return place

    def let_in(self) -> None:
        """Give places to those that wait, as far as there are any."""
        stuck: set[str | None] = set()
        while len(stuck) < len(self._lines) and self.membership.has_room:
            heads = (next(iter(line)) for key, line in self._lines.items() if key not in stuck)
            first = min(heads, key=lambda held: held.asked.turn)
            if not self._let_in(first):
                stuck.add(first.asked.line)

    def _let_in(self, held: _Held) -> bool:
        """Whether it waits no more."""
        if not held.place.done():  # its client may have left just now
            try:
                place = self._place_now(held.asked)
            except Exception as error:  # a policy that is broken is that request's error
                held.place.set_exception(error)
            else:
                if place is None:
                    return False
                held.place.set_result(place)
        self._forget(held)
        return True

    def check(self, now_s: float) -> None:
        """Refuse those that have waited for too long, and look again for the others."""
        for held in [held for line in self._lines.values() for held in line]:
            until_s = held.asked.held_until_s
            if until_s is not None and now_s >= until_s and not held.place.done():
                waited = f"after {self._resilience.holding.timeout_ms:g} ms"
                held.place.set_exception(self._refusal(held.asked, waited))
                self._forget(held)
        self.let_in()

    def _place_now(self, asked: Asked) -> Place | None:
        barred = self.barred_for(asked.question.model)
        candidates = self.membership.candidates(asked.tried | barred if barred else asked.tried)
        if not candidates:
            return None
        return Place(self.dispatcher.choose(asked.question, candidates), self.membership)

    async def _wait(self, asked: Asked) -> Place:
        held = self._hold(asked)
        try:
            return await held.place
        except asyncio.CancelledError:
            if held.place.done() and not held.place.cancelled() and not held.place.exception():
                held.place.result().end(Ending())  # it came too late
            raise
        finally:
            self._forget(held)

    def _hold(self, asked: Asked) -> _Held:
        """Put the request in its line: at the end, or in front where it has waited before."""
        limits, now_s, waiting = self._resilience.holding, self._clock_s(), self.held
        has_waited = asked.held_until_s is not None
        if asked.held_until_s is None:
            asked.held_until_s = now_s + limits.timeout_ms / 1000.0
            self._turns += 1
            asked.turn = self._turns
        is_full = waiting >= limits.requests or self.held_bytes + asked.size_bytes > limits.bytes
        if is_full or now_s >= asked.held_until_s:
            raise self._refusal(asked, f"and {waiting} requests wait" if is_full else "now")
        asked.tried.clear()  # who waited may find them as good as new
        held = _Held(asked, asyncio.get_running_loop().create_future())
        line: OrderedDict[_Held, None] = self._lines.setdefault(asked.line, OrderedDict())
        line[held] = None
        self.held_bytes += asked.size_bytes
        if has_waited:
            line.move_to_end(held, last=False)
        return held

    def _forget(self, held: _Held) -> None:
        line = self._lines.get(held.asked.line)
        if line is not None and held in line:
            del line[held]
            self.held_bytes -= held.asked.size_bytes
            if not line:
                del self._lines[held.asked.line]

    def _refusal(self, asked: Asked, how: str) -> RefusedError:
        self.refused += 1
        if self.ready_for(asked.question):
            most = self._resilience.max_in_flight
            message = f"all replicas have {most} requests in flight, {how}"
            return RefusedError(message, 429, "overloaded", 1)
        next_probe_s = math.ceil(self._resilience.probing.interval_ms / 1000.0)
        if self.membership.ready:
            message = f"no replica that serves the model `{asked.question.model}` is ready, {how}"
            return RefusedError(message, 503, "model_unavailable", next_probe_s)
        failures = [
            f"; {member.url}: {member.health.last_failure.error}"
            for member in self.membership.members
            if member.health.last_failure is not None
        ]
        message = f"no replica is ready, {how}{''.join(failures[:1])}"
        return RefusedError(message, 503, "no_replica_ready", next_probe_s)
