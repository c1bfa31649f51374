"""Where a request gets its place on a replica: at once, or after a wait in the router.

    lines.py    while no replica that serves its model is ready, or all of those are full
    held.py     with ``Holding.wait_ms``, while the one that the policy chose has too much to do

So many, so large and so long at most. Who waits is asked about anew, through the policy, when a
place may be free: in the order of the lines, or of those that are held for a replica.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from pointsman.dispatch.chosen import Chosen
from pointsman.dispatch.dispatcher import Dispatcher, Ending, Ticket
from pointsman.dispatch.hold_order import HoldRules
from pointsman.dispatch.question import NO_WAIT, Question, Wait
from pointsman.dispatch.record import CLIENT_LEFT, ROUTER_ERROR
from pointsman.router.asked import Asked, Refusals, RefusedError, Waiting
from pointsman.router.held import CallLater, HeldRequests, call_later
from pointsman.router.lines import Lines
from pointsman.router.membership import Membership, Replica
from pointsman.router.settings import Resilience

# Of a router that holds nobody for a replica.
NOBODY_IS_HELD = HoldRules(math.inf)


class Place:
    """A choice, and the count of it on its replica, until ``end``: exactly once."""

    __slots__ = ("_admission", "_is_over", "replica", "ticket")

    def __init__(self, ticket: Ticket, admission: Admission) -> None:
        self.ticket = ticket
        self.replica: Replica = admission.membership.sent(ticket.replica)
        self._admission = admission
        self._is_over = False

    @property
    def culprit(self) -> int:
        """Who is not to get it again, where it failed."""
        return self.replica.number

    def end(self, ending: Ending) -> None:
        """Give it back; calls after the first do nothing."""
        if not self._is_over:
            self._is_over = True
            self.ticket.end(ending)
            self._admission.ended(self.replica)


class Admission:
    """Asks the dispatcher for one request after the other, and has those wait that get no place.

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
        self.barred_for: Callable[[str | None], frozenset[int]] = lambda model: frozenset()
        self.held_bytes = 0
        self.refused = 0
        self._limits = resilience.holding
        self._refusals = Refusals(membership, resilience)
        self._clock_s = clock_s
        self._turns = 0
        self._lines = Lines()
        rules = resilience.holding.rules
        self._for_replicas = HeldRequests[Waiting](rules or NOBODY_IS_HELD, dispatcher, later)
        self._holds = rules is not None
        self._away: set[int] = set()  # replicas that were not ready when last looked at
        if rules is not None:
            dispatcher.on_news = self._look_at
        membership.on_opening = self.let_in

    @property
    def held(self) -> int:
        """How many requests wait."""
        return len(self._lines) + len(self._for_replicas)

    def ready_for(self, question: Question) -> list[int]:
        """The replicas that are ready and serve its model."""
        barred = self.barred_for(question.model)
        return [number for number in self.membership.ready if number not in barred]

    async def place(self, asked: Asked) -> Place:
        """A place for the request. Raises RefusedError where it can have none, nor wait longer."""
        if asked.question.model not in self._lines:
            place = self._place_now(asked)
            if place is not None:
                return place
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

    def ended(self, replica: Replica) -> None:
        """One of the replica's requests has ended."""
        self.membership.ended(replica)
        if self._holds:
            self._look_at(replica.number)

    def let_in(self) -> None:
        """Give places to those that wait in line, as far as there are any, and ask anew about those
        that are held for a replica that is not ready any more, or is again."""
        self._lines.let_in(self._leave_line, lambda: self.membership.has_room)
        for replica in self._for_replicas.replicas:
            if replica in self._away or replica not in self.membership.ready:
                self._look_at(replica)

    def check(self, now_s: float) -> None:
        """Let go or refuse those that have waited for too long, and look again for the others."""
        everyone = self._lines.everyone + self._for_replicas.everyone
        for waiting in sorted(everyone, key=lambda each: each.asked.turn):
            until_s = waiting.asked.held_until_s
            if until_s is not None and now_s >= until_s and not waiting.place.done():
                self._wait_is_over(waiting)
        self.let_in()
        for replica in self._for_replicas.replicas:
            self._look_at(replica)  # its wait for a seat goes by the answers of all

    def _wait_is_over(self, waiting: Waiting) -> None:
        """Send it to the replica that it is held for, whatever there is to do; else refuse it."""
        if waiting.replica is not None and self._let_in(waiting):
            return
        waited = f"after {self._limits.timeout_ms:g} ms"
        waiting.place.set_exception(self._refusal(waiting.asked, waited))
        self._forget(waiting)

    # One request.

    def _place_now(self, asked: Asked) -> Place | None:
        """None: no replica may have it, or it is held for one now."""
        barred = self.barred_for(asked.question.model)
        if asked.outside:
            barred = barred | asked.outside
        without = asked.tried | barred if barred else asked.tried
        if asked.draw is None:
            asked.draw = self.membership.next_draw()
        candidates = self.membership.candidates(without, asked.draw)
        if not candidates:
            return None
        chosen = self.dispatcher.ask(asked.question, candidates, asked.wait)
        if self._holds and self._is_to_be_held(asked, chosen):
            since_ms = asked.wait.since_ms
            since_ms = chosen.situation.now_ms if since_ms is None else since_ms
            asked.wait = Wait(since_ms, self.dispatcher.hold(chosen))
            return None
        place = Place(self.dispatcher.send(chosen), self)
        asked.wait = NO_WAIT
        return place

    def _is_to_be_held(self, asked: Asked, chosen: Chosen) -> bool:
        """For the replica that was chosen, which has too much to do, or others held for it."""
        limit_ms = self._for_replicas.rules.wait_ms
        if asked.held_until_s is not None and self._clock_s() >= asked.held_until_s:
            return False
        if asked.wait.since_ms is None and not self._has_room_for(asked):
            return False
        ledger, now_ms = self.dispatcher.ledger, chosen.situation.now_ms
        wait_ms, _ = ledger.expected_wait(chosen.replica, chosen.tokens[0], now_ms, limit_ms)
        overtakes = asked.wait.hold is None and ledger.held_for(chosen.replica) > 0
        return wait_ms > limit_ms or overtakes

    def _has_room_for(self, asked: Asked) -> bool:
        limits = self._limits
        return self.held < limits.requests and self.held_bytes + asked.size_bytes <= limits.bytes

    def _let_in(self, waiting: Waiting) -> bool:
        """Whether it waits no more, or for a replica now that it was not held for."""
        asked, hold = waiting.asked, waiting.asked.wait.hold
        if waiting.place.done():  # its client has left just now
            self._give_up(asked, CLIENT_LEFT)
            self._forget(waiting)
            return True
        try:
            place = self._place_now(asked)
        except Exception as error:  # a policy that is broken is that request's error
            self._give_up(asked, ROUTER_ERROR)
            waiting.place.set_exception(error)
        else:
            if place is None:
                return asked.wait.hold is not hold and self._move(waiting)
            waiting.place.set_result(place)
        self._forget(waiting)
        return True

    def _leave_line(self, waiting: Waiting) -> bool:
        """Whether it waits in its line no more."""
        if not self._let_in(waiting):
            return False
        if waiting.replica is not None:
            self._look_at(waiting.replica)
        return True

    def _look_at(self, replica: int) -> None:
        """Try those that are held for the replica, one after the other, while it has little to do,
        or is not ready."""
        held = self._for_replicas
        if not held.holds_for(replica):
            return
        if replica not in self.membership.ready:
            self._away.add(replica)
            self._try_held(replica)
            return
        self._away.discard(replica)
        held.watch(replica, self._try_held(replica, may_go=held.has_little_to_do), self._look_at)

    def _try_held(
        self, replica: int, may_go: Callable[[int, int], bool] = lambda replica, tokens: True
    ) -> int:
        """Try them in their turns, each once, while a prompt of so many tokens ``may_go``; tokens
        of the one that stays whose turn it is, 0 where none would do."""
        tried: set[Waiting] = set()
        tokens = 0
        while self.membership.has_room:
            if not may_go(replica, 0):
                return 0  # nobody asks whose turn it is
            first = self._for_replicas.first(replica, tried)
            if first is None:
                break
            waiting, hold = first
            tokens = hold.needs.prompt_tokens
            if not may_go(replica, tokens):
                break
            tried.add(waiting)
            if not self._let_in(waiting):  # nobody may have it
                waiting.asked.tried.clear()  # who waited may find them as good as new
        return tokens

    # Waiting.

    async def _wait(self, asked: Asked) -> Place:
        waiting = self._begin_to_wait(asked)
        if waiting.replica is not None:
            self._look_at(waiting.replica)
        try:
            return await waiting.place
        except asyncio.CancelledError:
            place = waiting.place
            if place.done() and not place.cancelled() and not place.exception():
                place.result().end(Ending())  # it came too late
            else:
                self._give_up(asked, CLIENT_LEFT)
            raise
        finally:
            self._forget(waiting)

    def _begin_to_wait(self, asked: Asked) -> Waiting:
        """For its replica, or in its line: at the end, or in front where it has waited before."""
        now_s, has_waited = self._clock_s(), asked.held_until_s is not None
        if asked.held_until_s is None:
            asked.held_until_s = now_s + self._limits.timeout_ms / 1000.0
            self._turns += 1
            asked.turn = self._turns
        if asked.wait.hold is None:
            asked.wait = Wait(self.dispatcher.clock_ms())
            is_full = not self._has_room_for(asked)
            if is_full or now_s >= asked.held_until_s:
                raise self._refusal(asked, f"and {self.held} requests wait" if is_full else "now")
            asked.tried.clear()  # who waited may find them as good as new
        waiting = Waiting(asked, asyncio.get_running_loop().create_future())
        self.held_bytes += asked.size_bytes
        if asked.wait.hold is None:
            self._lines.add(waiting, in_front=has_waited)
        else:
            self._stand_for(waiting, asked.wait.hold.replica)
        return waiting

    def _stand_for(self, waiting: Waiting, replica: int) -> None:
        waiting.replica = replica
        self._for_replicas.add(waiting, waiting.asked.wait, waiting.asked.turn)

    def _leave(self, waiting: Waiting) -> bool:
        """Stand nowhere any more; whether it stood somewhere."""
        if waiting.replica is None:
            return self._lines.remove(waiting)
        return self._for_replicas.remove(waiting, waiting.replica)

    def _move(self, waiting: Waiting) -> bool:
        """Stand where it is held now."""
        hold = waiting.asked.wait.hold
        assert hold is not None, "held for nothing"
        self._leave(waiting)
        self._stand_for(waiting, hold.replica)
        self._for_replicas.watch(hold.replica, hold.needs.prompt_tokens, self._look_at)
        return True

    def _forget(self, waiting: Waiting) -> None:
        if self._leave(waiting):
            self.held_bytes -= waiting.asked.size_bytes

    def _give_up(self, asked: Asked, cause: str) -> None:
        """It waits no more, without a place; what follows a refusal changes nothing."""
        if asked.wait.since_ms is not None:
            self.dispatcher.give_up(asked.question, asked.wait, cause)
            asked.wait = NO_WAIT

    def _refusal(self, asked: Asked, how: str) -> RefusedError:
        self.refused += 1
        refused = self._refusals.of(asked, how, self.ready_for(asked.question))
        self._give_up(asked, refused.code)
        return refused
