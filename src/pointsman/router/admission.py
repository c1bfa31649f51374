"""Where a request gets its place on a replica: at once, or after a wait in the router.

It waits while no replica that serves its model is ready, or all of those are full; first come,
first served, so many, so large and so long at most. Who waits is asked about anew, through the
policy, when a place may be free.

A line for each model, so that nobody waits behind one whose model nobody serves just now. Where
replicas serve several models, who came first goes first.

With ``Holding.wait_ms`` it is also held while the replica that the policy chose has too much to do
(held.py), in the order of the rules; then it stands in no line.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from pointsman.core.errors import PointsmanError
from pointsman.dispatch.chosen import Chosen
from pointsman.dispatch.dispatcher import Dispatcher, Ending, Ticket
from pointsman.dispatch.question import NO_WAIT, Question, Wait
from pointsman.dispatch.record import CLIENT_LEFT, ROUTER_ERROR
from pointsman.router.held import CallLater, HeldRequests, call_later
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
    """A request that wants a place: ``tried`` are the replicas that it is not to get again,
    ``outside`` those that it may not have at all."""

    question: Question
    size_bytes: int
    tried: set[int] = field(default_factory=set)
    outside: frozenset[int] = frozenset()
    held_until_s: float | None = None  # None: it has never waited
    turn: int = 0  # the lower goes first, once it has waited
    wait: Wait = NO_WAIT  # the one that goes on

    @property
    def line(self) -> str | None:
        """Whom it waits behind: those of the same model."""
        return self.question.model


class Place:
    """A choice, and the count of it on its replica, until ``end``: exactly once."""

    __slots__ = ("_admission", "_is_over", "replica", "ticket")

    def __init__(self, ticket: Ticket, admission: Admission) -> None:
        self.ticket = ticket
        self.replica: Replica = admission.membership.sent(ticket.replica)
        self._admission = admission
        self._is_over = False

    def end(self, ending: Ending) -> None:
        """Give it back; calls after the first do nothing."""
        if not self._is_over:
            self._is_over = True
            self.ticket.end(ending)
            self._admission.ended(self.replica)


@dataclass(slots=True, eq=False)
class _Held:
    asked: Asked
    place: asyncio.Future[Place]
    replica: int | None = None  # the one that it stands for; None: in its line


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
        later: CallLater = call_later,
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
        self._for_replicas: HeldRequests[_Held] | None = None  # None: nobody is held for one
        self._away: set[int] = set()  # replicas that were not ready when last looked at
        rules = resilience.holding.rules
        if rules is not None:
            self._for_replicas = HeldRequests(rules, dispatcher, later)
            dispatcher.on_news = self._look_at
        membership.on_opening = self.let_in

    @property
    def held(self) -> int:
        """How many requests wait."""
        held = self._for_replicas
        return sum(map(len, self._lines.values())) + (0 if held is None else len(held))

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

    def ended(self, replica: Replica) -> None:
        """One of the replica's requests has ended."""
        self.membership.ended(replica)
        if self._for_replicas:
            self._look_at(replica.number)

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
        """Give places to those that wait in line, as far as there are any, and ask anew about those
        that are held for a replica that is not ready any more, or is again."""
        stuck: set[str | None] = set()
        while len(stuck) < len(self._lines) and self.membership.has_room:
            heads = (next(iter(line)) for key, line in self._lines.items() if key not in stuck)
            first = min(heads, key=lambda held: held.asked.turn)
            line = first.asked.line
            if not self._let_in(first):
                stuck.add(line)
            elif first.asked.wait.hold is not None:
                self._look_at(first.asked.wait.hold.replica)
        if self._for_replicas:
            for replica in self._for_replicas.replicas:
                if replica in self._away or replica not in self.membership.ready:
                    self._look_at(replica)

    def _look_at(self, replica: int) -> None:
        """Try those that are held for the replica, one after the other, while it has little to do,
        or is not ready."""
        held = self._for_replicas
        if held is None or not held.holds_for(replica):
            return
        tried: set[_Held] = set()
        is_ready = replica in self.membership.ready
        if is_ready:
            self._away.discard(replica)
        else:
            self._away.add(replica)
        tokens = 0  # while it has too much to do for any prompt, nobody asks whose turn it is
        while self.membership.has_room:
            if is_ready and not held.has_little_to_do(replica, 0):
                tokens = 0
                break
            first = held.first(replica, tried)
            if first is None:
                break
            tokens = first[1].needs.prompt_tokens
            if is_ready and not held.has_little_to_do(replica, tokens):
                break
            tried.add(first[0])
            if not self._let_in(first[0]):  # nobody may have it
                first[0].asked.tried.clear()  # who waited may find them as good as new
        if is_ready:
            held.watch(replica, tokens, self._look_at)

    def _let_in(self, held: _Held) -> bool:
        """Whether it waits no more, or for a replica now that it was not held for."""
        if held.place.done():  # its client has left just now
            self._give_up(held.asked, CLIENT_LEFT)
        else:
            hold = held.asked.wait.hold
            try:
                place = self._place_now(held.asked)
            except Exception as error:  # a policy that is broken is that request's error
                self._give_up(held.asked, ROUTER_ERROR)
                held.place.set_exception(error)
            else:
                if place is None:
                    return held.asked.wait.hold is not hold and self._move(held)
                held.place.set_result(place)
        self._forget(held)
        return True

    def check(self, now_s: float) -> None:
        """Let go or refuse those that have waited for too long, and look again for the others."""
        for held in self._waiting:
            until_s = held.asked.held_until_s
            if until_s is not None and now_s >= until_s and not held.place.done():
                is_for_replica = held.asked.wait.hold is not None
                if not (is_for_replica and self._let_in(held)):
                    waited = f"after {self._resilience.holding.timeout_ms:g} ms"
                    held.place.set_exception(self._refusal(held.asked, waited))
                    self._forget(held)
        self.let_in()
        for replica in self._for_replicas.replicas if self._for_replicas else ():
            self._look_at(replica)  # its wait for a seat goes by the answers of all

    @property
    def _waiting(self) -> list[_Held]:
        """All that wait, who came first first."""
        waiting = [held for line in self._lines.values() for held in line]
        if self._for_replicas is not None:
            waiting += self._for_replicas.everyone
        return sorted(waiting, key=lambda held: held.asked.turn)

    def _place_now(self, asked: Asked) -> Place | None:
        """None: no replica may have it, or it is held for one now."""
        barred = self.barred_for(asked.question.model)
        if asked.outside:
            barred = barred | asked.outside
        candidates = self.membership.candidates(asked.tried | barred if barred else asked.tried)
        if not candidates:
            return None
        chosen = self.dispatcher.ask(asked.question, candidates, asked.wait)
        if self._for_replicas is not None and self._stays(self._for_replicas, asked, chosen):
            since_ms = asked.wait.since_ms
            since_ms = chosen.situation.now_ms if since_ms is None else since_ms
            asked.wait = Wait(since_ms, self.dispatcher.hold(chosen))
            return None
        place = Place(self.dispatcher.send(chosen), self)
        asked.wait = NO_WAIT
        return place

    def _stays(self, held: HeldRequests[_Held], asked: Asked, chosen: Chosen) -> bool:
        """Whether it is to be held for the replica that was chosen."""
        if asked.held_until_s is not None and self._clock_s() >= asked.held_until_s:
            return False
        if asked.wait.since_ms is None and not self._has_room_for(asked):
            return False
        prompt_tokens, now_ms = chosen.tokens[0], chosen.situation.now_ms
        ledger, limit_ms = self.dispatcher.ledger, held.rules.wait_ms
        wait_ms, _ = ledger.expected_wait(chosen.replica, prompt_tokens, now_ms, limit_ms)
        overtakes = asked.wait.hold is None and ledger.held_for(chosen.replica) > 0
        return wait_ms > limit_ms or overtakes

    def _has_room_for(self, asked: Asked) -> bool:
        limits = self._resilience.holding
        return self.held < limits.requests and self.held_bytes + asked.size_bytes <= limits.bytes

    async def _wait(self, asked: Asked) -> Place:
        held = self._hold(asked)
        if asked.wait.hold is not None:
            self._look_at(asked.wait.hold.replica)
        try:
            return await held.place
        except asyncio.CancelledError:
            if held.place.done() and not held.place.cancelled() and not held.place.exception():
                held.place.result().end(Ending())  # it came too late
            else:
                self._give_up(asked, CLIENT_LEFT)
            raise
        finally:
            self._forget(held)

    def _hold(self, asked: Asked) -> _Held:
        """Let the request wait: for its replica, or in its line, there at the end, or in front
        where it has waited before."""
        now_s, has_waited = self._clock_s(), asked.held_until_s is not None
        if asked.held_until_s is None:
            asked.held_until_s = now_s + self._resilience.holding.timeout_ms / 1000.0
            self._turns += 1
            asked.turn = self._turns
        if asked.wait.hold is None:
            asked.wait = Wait(self.dispatcher.clock_ms())
            is_full = not self._has_room_for(asked)
            if is_full or now_s >= asked.held_until_s:
                raise self._refusal(asked, f"and {self.held} requests wait" if is_full else "now")
            asked.tried.clear()  # who waited may find them as good as new
        held = _Held(asked, asyncio.get_running_loop().create_future())
        self.held_bytes += asked.size_bytes
        self._stand(held)
        if has_waited and asked.wait.hold is None:
            self._lines[asked.line].move_to_end(held, last=False)
        return held

    def _stand(self, held: _Held) -> None:
        asked, hold = held.asked, held.asked.wait.hold
        if hold is None or self._for_replicas is None:
            line: OrderedDict[_Held, None] = self._lines.setdefault(asked.line, OrderedDict())
            line[held] = None
        else:
            held.replica = hold.replica
            self._for_replicas.add(held, asked.wait, asked.turn)

    def _leave(self, held: _Held) -> bool:
        """Stand nowhere any more; whether it stood somewhere."""
        if held.replica is not None and self._for_replicas is not None:
            return self._for_replicas.remove(held, held.replica)
        line = self._lines.get(held.asked.line)
        if line is None or held not in line:
            return False
        del line[held]
        if not line:
            del self._lines[held.asked.line]
        return True

    def _move(self, held: _Held) -> bool:
        """Stand where it is held now."""
        self._leave(held)
        self._stand(held)
        hold = held.asked.wait.hold
        if self._for_replicas is not None and hold is not None:
            self._for_replicas.watch(hold.replica, hold.needs.prompt_tokens, self._look_at)
        return True

    def _forget(self, held: _Held) -> None:
        if self._leave(held):
            self.held_bytes -= held.asked.size_bytes

    def _give_up(self, asked: Asked, cause: str) -> None:
        """It waits no more, without a place; what follows a refusal changes nothing."""
        if asked.wait.since_ms is not None:
            self.dispatcher.give_up(asked.question, asked.wait, cause)
            asked.wait = NO_WAIT

    def _refusal(self, asked: Asked, how: str) -> RefusedError:
        self.refused += 1
        refused = self._why_refused(asked, how)
        self._give_up(asked, refused.code)
        return refused

    def _why_refused(self, asked: Asked, how: str) -> RefusedError:
        ready = self.ready_for(asked.question)
        if asked.outside:
            ready = [number for number in ready if number not in asked.outside]
        if ready:
            most = self._resilience.max_in_flight
            message = f"all replicas have {most} requests in flight, {how}"
            return RefusedError(message, 429, "overloaded", 1)
        next_probe_s = math.ceil(self._resilience.probing.interval_ms / 1000.0)
        if asked.outside and self.ready_for(asked.question):
            message = f"none of the replicas that the request may go to is ready, {how}"
            return RefusedError(message, 503, "no_replica_ready", next_probe_s)
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
