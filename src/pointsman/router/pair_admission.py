"""Where a request gets its pair: the candidates of a choice, and the count of it on both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pointsman.dispatch.pair_dispatcher import PairDispatcher, PairTicket
from pointsman.dispatch.question import NO_WAIT, Question
from pointsman.dispatch.view import UNKNOWN
from pointsman.router.admission import Admission, Place
from pointsman.router.asked import Asked
from pointsman.router.membership import Membership, Replica
from pointsman.router.prompt import CHAT, COMPLETIONS
from pointsman.router.settings import Resilience


class PairPlace(Place):
    """A choice of a pair; ``replica`` is that which answers, ``prefill`` that which computes the
    prompt for it, None where no other does."""

    __slots__ = ("blames_prefill", "pair_ticket", "prefill")

    def __init__(self, ticket: PairTicket, admission: PairAdmission) -> None:
        super().__init__(ticket, admission)
        self.pair_ticket = ticket
        self.blames_prefill = False
        self.prefill: Replica | None = None
        if ticket.prefill is not None:
            self.prefill = admission.membership.sent(ticket.prefill)
            ticket.on_prefilled = self._free_prefill

    @property
    def culprit(self) -> int:
        """Who is not to get it again, where it failed."""
        blamed = self.prefill if self.blames_prefill else None
        return (blamed or self.replica).number

    def _free_prefill(self) -> None:
        assert self.prefill is not None
        self._admission.ended(self.prefill)


@dataclass(frozen=True, slots=True)
class Roles:
    """The numbers of the replicas of each. ``decodes_alone``: whether a decode replica can do a
    request without a hand-off."""

    prefills: frozenset[int]
    decodes: frozenset[int]
    decodes_alone: bool


class PairAdmission(Admission):
    """Asks about pairs, and about decode replicas by themselves where there is no hand-off."""

    def __init__(
        self,
        dispatcher: PairDispatcher,
        membership: Membership,
        resilience: Resilience,
        clock_s: Callable[[], float],
        roles: Roles,
    ) -> None:
        assert resilience.holding.rules is None, "nothing is held for a pair"
        super().__init__(dispatcher, membership, resilience, clock_s)
        self._pairs = dispatcher
        self._roles = roles
        self._numbered = list(enumerate(dispatcher.pairs))

    def ready_for(self, question: Question) -> list[int]:
        """The decode replicas that could answer it now, were they not full."""
        ready = super().ready_for(question)
        roles = self._roles
        decodes = [number for number in ready if number in roles.decodes]
        if _is_handed_off(question) and not roles.decodes_alone:
            return decodes if roles.prefills.intersection(ready) else []
        return decodes

    def candidates(self, asked: Asked) -> list[int]:
        """The pairs, by number; where no prefill replica is ready for it, or it is not to be handed
        off, the decode replicas by themselves."""
        roles = self._roles
        barred = asked.tried | self.barred_for(asked.question.model)
        if asked.draw is None:
            asked.draw = self.membership.next_draw()
        decodes = set(self.membership.candidates(barred | roles.prefills, asked.draw))
        is_handed_off = _is_handed_off(asked.question)
        ready = roles.prefills.intersection(self.membership.ready) - barred
        if is_handed_off and (ready or not roles.decodes_alone):
            prefills = set(self.membership.candidates(barred | roles.decodes, asked.draw))
            return [k for k, (p, d) in self._numbered if p in prefills and d in decodes]
        return [k for k, (p, d) in self._numbered if d is None and p in decodes]

    def _place_now(self, asked: Asked) -> Place | None:
        candidates = self.candidates(asked)
        if not candidates:
            return None
        chosen = self._pairs.ask(asked.question, candidates, asked.wait)
        place = PairPlace(self._pairs.send(chosen), self)
        asked.wait = NO_WAIT
        return place


def _is_handed_off(question: Question) -> bool:
    return question.path in (CHAT, COMPLETIONS) and question.prompt_tokens != UNKNOWN
