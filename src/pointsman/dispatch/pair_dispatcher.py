"""Choices of pairs: the same questions and policies, with a hand-off between choice and answer.

chosen -> prefilled -> [handed_off] -> first_token -> end
    `---> fell_back: the decode replica computes the prompt itself
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from pointsman.dispatch.chosen import Chosen
from pointsman.dispatch.dispatcher import DecisionSink, Dispatcher, Ending, Memory, Rules, Ticket
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.pair_ledger import PairLedger, Pairs
from pointsman.dispatch.record import OK, Choice, FellBack, HandedOff, Held, Pair, Prefilled


class PairObserver(Protocol):
    """Who counts hand-offs."""

    def observe_handoff(self, pair: int, took_ms: float | None, size_bytes: int | None) -> None:
        """One was made; None where it could not be seen."""

    def observe_fall_back(self, cause: str) -> None:
        """One was not made."""


@dataclass(frozen=True, slots=True)
class PairFleet:
    """What is known of each replica, and which of them make pairs."""

    facts: Sequence[ReplicaFacts]
    pairs: Pairs


class PairDispatcher(Dispatcher):
    """A dispatcher whose candidates are pairs, by number; there is no room for more replicas."""

    def __init__(
        self,
        rules: Rules,
        fleet: PairFleet,
        clock_ms: Callable[[], float],
        log: DecisionSink | None = None,
        memory: Memory | None = None,
    ) -> None:
        super().__init__(rules, fleet.facts, clock_ms, log, memory)
        self.pairs = fleet.pairs.numbered
        self.pair_ledger = PairLedger(fleet.facts, fleet.pairs)
        self.ledger = self.pair_ledger
        self.pair_observer: PairObserver | None = None

    def send(self, chosen: Chosen) -> PairTicket:
        """The request goes to the pair that was chosen."""
        question, now_ms = chosen.question, chosen.situation.now_ms
        pair = self.pairs[chosen.replica]
        if self.log is not None:
            self.log.write(self._line(chosen, pair))
        self._let_go(chosen.wait)
        ticket = PairTicket(self, chosen)
        self.homes.settle(question.session, chosen.replica, now_ms)
        for replica in pair:
            if replica is not None:
                self.prefixes.hold(question.chain, replica)
        if self.observer is not None:
            took_ms = self.clock_ms() - now_ms
            self.observer.observe_choice(ticket.replica, chosen.reason, took_ms)
        return ticket

    def _line(self, chosen: Chosen, pair: Pair) -> Choice | Held:
        numbers = {r for k in chosen.situation.candidates for r in self.pairs[k] if r is not None}
        most = max(0.0, chosen.question.priced_tokens - 1.0)
        cached = self.ledger.cached
        hits = {r: min(float(cached[r]), most) for r in sorted(numbers) if cached[r] > 0.0}
        return replace(chosen.line(), pair=pair, hits=hits)


class PairTicket(Ticket):
    """One request's choice of a pair; ``replica`` is that which answers, ``prefill`` that which
    computes the prompt for it, or None. ``on_prefilled`` is told when that is free of it."""

    __slots__ = (
        "_cached_there",
        "_expected_ms",
        "_is_told",
        "_moved_tokens",
        "_pair",
        "_pairs",
        "_prefilled_ms",
        "_prompt_tokens",
        "_streams",
        "on_prefilled",
        "prefill",
    )

    def __init__(self, dispatcher: PairDispatcher, chosen: Chosen) -> None:
        """Count it."""
        question, now_ms = chosen.question, chosen.situation.now_ms
        ledger = dispatcher.pair_ledger
        computes, decode = dispatcher.pairs[chosen.replica]
        cached = float(ledger.cached[computes if decode is None else decode])
        self._moved_tokens, self._expected_ms = 0.0, 0.0
        if decode is not None:
            handoff = ledger.expected_handoff(chosen.replica, question.priced_tokens)
            self._moved_tokens, self._expected_ms = handoff
        slot = ledger.send(chosen.replica, chosen.tokens, now_ms, question.streams)
        super().__init__(dispatcher, chosen, slot)
        self.replica = computes if decode is None else decode
        self.prefill = None if decode is None else computes
        self.on_prefilled: Callable[[], None] = lambda: None
        self._pairs, self._pair = dispatcher, chosen.replica
        self._prompt_tokens = question.priced_tokens
        self._cached_there = max(0, int(min(cached, question.priced_tokens - 1)))
        self._streams = question.streams
        self._prefilled_ms: float | None = None
        self._is_told = False

    @property
    def is_prefilling(self) -> bool:
        """Whether its prefill is neither answered nor given up."""
        return self._is_open and self._slot in self._pairs.pair_ledger.prefills

    @property
    def has_first_token(self) -> bool:
        """Whether the first token of its stream has come."""
        return self._first_token_ms is not None

    def prefilled(self, engine_ms: float | None = None) -> None:
        """The prefill was answered; calls after the first do nothing.

        ``engine_ms``: how long the engine says that it took without its wait; for the log alone.
        """
        if not self.is_prefilling:
            return
        ledger, now_ms = self._pairs.pair_ledger, self._pairs.clock_ms()
        first_ms = None
        if not self._streams:
            first_ms = ledger.expected_first_ms(self._slot, self._expected_ms, now_ms)
        self._expected_ms = ledger.expected_decode_ms(self._slot, now_ms)
        self._prefilled_ms = now_ms
        ledger.prefilled(self._slot, first_ms, now_ms)
        if self._pairs.log is not None:
            self._pairs.log.write(Prefilled(self.chosen.sequence, now_ms, first_ms, engine_ms))
        self.on_prefilled()

    def handed_off(self, size_bytes: int | None = None) -> None:
        """The cache is on the decode replica now; where nobody tells, the first token does."""
        assert self._prefilled_ms is not None, "after its prefill"
        self._tell(self._pairs.clock_ms() - self._prefilled_ms, size_bytes)

    def fall_back(self, cause: str) -> None:
        """There is no hand-off: the decode replica computes the prompt."""
        was_prefilling, now_ms = self.is_prefilling, self._pairs.clock_ms()
        uncached = self._prompt_tokens - self._cached_there
        self._is_told = True
        self._pairs.pair_ledger.fall_back(self._slot, uncached, now_ms, self._streams)
        if self._pairs.log is not None:
            line = FellBack(self.chosen.sequence, now_ms, cause, uncached, self._streams)
            self._pairs.log.write(line)
        self.count_failure(cause)
        if was_prefilling:
            self.on_prefilled()

    def count_failure(self, cause: str) -> None:
        """A hand-off was not made."""
        if self._pairs.pair_observer is not None:
            self._pairs.pair_observer.observe_fall_back(cause)

    def first_token(self) -> None:
        """The first token of its stream came; calls after the first, or the end, do nothing."""
        if self._first_token_ms is None and self._is_open and self.prefill is not None:
            self.prefilled()
            if not self._is_told and self._prefilled_ms is not None:
                took_ms = self._pairs.clock_ms() - self._prefilled_ms - self._expected_ms
                self._tell(max(0.0, took_ms), None)
        super().first_token()

    def end(self, ending: Ending) -> None:
        """Free the places and write the outcome; calls after the first do nothing."""
        if ending.status == OK:
            self.prefilled()  # else there would be no answer
        was_prefilling = self.is_prefilling
        is_seen = self._prefilled_ms is not None and ending.status == OK
        if self._is_open and is_seen and not self._is_told:
            self._tell(None, None)
        super().end(ending)
        if was_prefilling:
            self.on_prefilled()

    def _tell(self, took_ms: float | None, size_bytes: int | None) -> None:
        self._is_told = True
        dispatcher, tokens = self._pairs, self._moved_tokens
        now_ms = dispatcher.clock_ms()
        if took_ms is not None:
            dispatcher.pair_ledger.handed_off(self._pair, tokens, took_ms)
        if dispatcher.log is not None:
            line = HandedOff(self.chosen.sequence, now_ms, self._pair, tokens, took_ms, size_bytes)
            dispatcher.log.write(line)
        if dispatcher.pair_observer is not None:
            dispatcher.pair_observer.observe_handoff(self._pair, took_ms, size_bytes)
