"""The views of a log's choices, and the requests in flight at each, from what happened before.

The router's accounts are a function of the events of the log, so the log need not repeat them. The
view of a choice is the logged one; where that is not of all candidates, it is filled again.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.ledger import Asked, Ledger, Needs
from pointsman.dispatch.log_file import Log
from pointsman.dispatch.pair_ledger import PairLedger, Pairs
from pointsman.dispatch.record import (
    Ask,
    Choice,
    Event,
    FellBack,
    FirstToken,
    HandOffEvent,
    Held,
    Joined,
    Outcome,
    Prefilled,
    Reading,
    Snapshot,
    Unplaced,
)
from pointsman.dispatch.snapshot import restore
from pointsman.policies.in_flight import InFlight
from pointsman.policies.policy import ROWS, View

_ALL_ROWS = (1 << ROWS) - 1


def situations(log: Log) -> Iterator[tuple[Ask, View, InFlight]]:
    """Each choice, whether the request was sent there or held for it, with the view of all its
    candidates and what was in flight, before it counted.

    What is yielded is to be used before the next step.
    """
    past = Past(log)
    for event in log.events:
        if isinstance(event, Ask):
            view = past.view_of(event)
            yield event, event.logged_view if event.has_whole_view else view, past.ledger.known
        past.happen(event)


class Past:
    """The accounts of a log's router up to some line."""

    def __init__(self, log: Log) -> None:
        self._facts = log.head.facts
        self._room = len(log.replicas)
        self._head = log.head
        self.ledger = self._idle_ledger(self._facts)
        self._slots: dict[int, int] = {}

    def view_of(self, ask: Ask) -> View:
        """The view of all candidates as the router filled it.

        Who held what is no matter of the accounts: the log says it for each choice.
        """
        count = len(ask.candidates)
        views = np.empty((ROWS, count)), np.empty((ROWS, count))
        candidates = np.array(ask.candidates, dtype=np.int32)
        self.ledger.cached[:] = 0.0
        for replica, tokens in ask.hits.items():
            self.ledger.cached[replica] = tokens
        asked = Asked(ask.time_ms, (ask.priced_tokens, _ALL_ROWS), candidates, views)
        if ask.after is None:
            self.ledger.fill(asked)
        else:
            with self.ledger.trying(self.ledger.held[ask.after][0]):
                self.ledger.fill(asked)
        return views[0]

    def happen(self, event: Event) -> None:
        """Count what happened."""
        ledger = self.ledger
        if isinstance(event, Choice | Held | Unplaced) and event.after is not None:
            ledger.let_go(event.after)
        if isinstance(event, Choice):
            tokens = (event.priced_tokens, _uncached_tokens(event))
            slot = ledger.send(event.replica, tokens, event.time_ms, event.shows_first_token)
            self._slots[event.sequence] = slot
        elif isinstance(event, Held):
            needs = Needs(event.expected_work_ms, _uncached_tokens(event), event.priced_tokens)
            ledger.hold(event.replica, needs)
        elif isinstance(event, FirstToken):
            ledger.first_token(self._slots[event.sequence], event.time_ms)
        elif isinstance(event, Outcome):
            slot = self._slots.pop(event.sequence)
            ledger.end(slot, event.usage.output_tokens, event.finish_ms)
        elif isinstance(event, HandOffEvent):
            self._hand_over(event)
        elif isinstance(event, Reading):
            ledger.read(event.replica, event.gauges, event.time_ms)
        elif isinstance(event, Joined):
            ledger.add(event.facts)
        elif isinstance(event, Snapshot):
            self._begin_with(event)

    def _hand_over(self, event: HandOffEvent) -> None:
        ledger = self.ledger
        assert isinstance(ledger, PairLedger), "the log was checked"
        slot = self._slots[event.sequence]
        if isinstance(event, Prefilled):
            ledger.prefilled(slot, event.assumed_first_ms, event.time_ms)
        elif isinstance(event, FellBack):
            ledger.fall_back(slot, event.uncached_tokens, event.time_ms, event.shows_first_token)
        elif event.took_ms is not None:
            ledger.handed_off(event.replica, event.tokens, event.took_ms)

    def _begin_with(self, snapshot: Snapshot) -> None:
        """Whatever the lines before it led to, if they are there."""
        facts = [*self._facts, *(joined.facts for joined in snapshot.joined)]
        self.ledger = self._idle_ledger(facts)
        self._slots = restore(self.ledger, snapshot)
        if isinstance(self.ledger, PairLedger):
            self.ledger.adopt(self._slots)

    def _idle_ledger(self, facts: list[ReplicaFacts]) -> Ledger:
        pairs = self._head.pairs
        if isinstance(pairs, msgspec.UnsetType):
            return Ledger(facts, room=self._room)
        return PairLedger(facts, Pairs(pairs, moves_all=self._head.moves_all is True))


def _uncached_tokens(ask: Ask) -> int:
    return ask.priced_tokens - ask.hit_tokens
