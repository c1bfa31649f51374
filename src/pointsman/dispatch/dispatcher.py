"""One request from question to answer: what is known, what the policy says, what is remembered.

Question  ->  ask: Situation  ->  decide  ->  send: ledger, session home, prefix holder, log line
                                     |                                 |
                                     |      Ticket.first_token(...), then Ticket.end(...)
                                     |      <-  what came back; the end exactly once
                                     hold: counted for the replica, to be asked about again
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from pointsman.core.checks import check_seed
from pointsman.dispatch.choosing import Choosing
from pointsman.dispatch.chosen import Chosen
from pointsman.dispatch.draws import draw
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.homes import Homes
from pointsman.dispatch.ledger import Ledger
from pointsman.dispatch.prefix_index import PrefixIndex
from pointsman.dispatch.question import NO_WAIT, Hold, Wait
from pointsman.dispatch.question import Question as Question  # noqa: PLC0414 - the router's
from pointsman.dispatch.record import (
    CANCELLED,
    NO_USAGE,
    Event,
    FirstToken,
    Held,
    Joined,
    Outcome,
    Reading,
    Unplaced,
    Usage,
    hexadecimal,
)
from pointsman.dispatch.view import UNKNOWN, Situation
from pointsman.policies.policy import RANDOM, Policy, View


class DecisionSink(Protocol):
    """Where choices and outcomes are kept."""

    @property
    def lost_lines(self) -> int:
        """Lines that could not be kept."""

    def write(self, line: Event) -> None:
        """Take one line."""

    def write_choice(self, chosen: Chosen) -> None:
        """Take the line of a choice that is sent, whose view is good until the next one."""
        self.write(chosen.line())


class Observer(Protocol):
    """Who counts what happens."""

    def observe_choice(self, replica: int, reason: str, took_ms: float) -> None:
        """A choice was made, which took so long."""

    def observe_first_token(self, replica: int, ttft_ms: float) -> None:
        """The first token of a stream came so long after its choice."""

    def observe_wait(self, replica: int, expected_ms: float, realised_ms: float) -> None:
        """A request waited so long."""

    def observe_cached(self, replica: int, predicted: int, reported: int | None) -> None:
        """Tokens taken to be cached there, and how many were, as the engine says."""

    def observe_end(self, replica: int, status: str) -> None:
        """A request ended."""

    def observe_release(self, held_ms: float) -> None:
        """A request that had waited for a replica was sent on."""

    def observe_shed(self, reason: str) -> None:
        """A request got no replica."""


class Ending(msgspec.Struct, frozen=True):
    """How a request went; the defaults are those of one that was given up before its answer."""

    status: str = CANCELLED
    http_status: int | None = None
    usage: Usage = NO_USAGE
    response_bytes: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """How choices are made: by which policy, with which draws.

    Raises InputError for a seed outside 0..2**63-1.
    """

    policy: Policy
    seed: int = 0

    def __post_init__(self) -> None:
        check_seed("draws", self.seed)


@dataclass(frozen=True, slots=True)
class Memory:
    """What a dispatcher keeps of the requests that it sent, beside its log: accounts of ``room``
    replicas at most, who was sent which prefix, and where sessions are at home."""

    room: int
    prefixes: PrefixIndex
    homes: Homes = field(default_factory=Homes)


class Dispatcher:
    """Answers questions one after the other, each with the ones before it accounted for.

    ``facts``: what is known of each replica. ``clock_ms`` is milliseconds since the start of the
    log and never goes back. ``memory``: its own from now on; None for one of these replicas.
    ``on_news`` is called when a first token or a reading of a replica has come.
    """

    def __init__(
        self,
        rules: Rules,
        facts: Sequence[ReplicaFacts],
        clock_ms: Callable[[], float],
        log: DecisionSink | None = None,
        memory: Memory | None = None,
    ) -> None:
        if memory is None:
            memory = Memory(len(facts), PrefixIndex(len(facts)))
        self.rules = rules
        self.clock_ms = clock_ms
        self.log = log
        self.observer: Observer | None = None
        self.on_news: Callable[[int], None] | None = None
        self.ledger = Ledger(facts, memory.room)
        self.homes = memory.homes
        self.prefixes = memory.prefixes
        self._choosing = Choosing(rules.policy)
        reads = rules.policy.reads
        self._wants_draw, self._wants_key = RANDOM in reads, "key" in reads
        self._draw = draw.dispatcher  # looked up once: it is called for every request

    def choose(
        self, question: Question, candidates: Sequence[int] | None = None, wait: Wait = NO_WAIT
    ) -> Ticket:
        """Decide among the candidates (None: all replicas), and account for the decision.

        Raises InputError where the policy is broken. There must be a candidate: whoever has none
        asks nobody.
        """
        return self.send(self.ask(question, candidates, wait))

    def ask(
        self, question: Question, candidates: Sequence[int] | None = None, wait: Wait = NO_WAIT
    ) -> Chosen:
        """What the policy chooses, as in ``choose``; nothing is changed by it.

        It is to be sent or held before the next question, or forgotten. Nobody is to change the
        candidates after that.
        """
        among = range(self.ledger.count) if candidates is None else candidates
        assert among, "nothing to choose from"
        desk = self._choosing.desk(len(among), question.chain, (self.ledger, self.prefixes))
        situation = self._situation(question, among, desk.view)
        if wait.hold is None:
            looked = self._choosing.look(question, situation, desk)
        else:
            with self.ledger.trying(wait.hold.replica):
                looked = self._choosing.look(question, situation, desk)
        candidate, reason, wait_ms, work_ms, hit_tokens = looked
        reasons = self.rules.policy.reasons
        return Chosen(
            question,
            situation,
            candidate,
            among[candidate],
            reasons[reason],
            wait_ms,
            work_ms,
            int(hit_tokens),
            wait,
        )

    def send(self, chosen: Chosen) -> Ticket:
        """The request goes where it was chosen to go."""
        question, now_ms = chosen.question, chosen.situation.now_ms
        if self.log is not None:
            self.log.write_choice(chosen)
        # What can fail has been done; else the log would lack a sequence, or have one twice.
        self._let_go(chosen.wait)
        self.homes.settle(question.session, chosen.replica, now_ms)
        self.prefixes.hold(question.chain, chosen.replica)
        slot = self.ledger.send(chosen.replica, chosen.tokens, now_ms, question.streams)
        ticket = Ticket(self, chosen, slot)
        if self.observer is not None:
            took_ms = self.clock_ms() - now_ms
            self.observer.observe_choice(chosen.replica, chosen.reason, took_ms)
        return ticket

    def hold(self, chosen: Chosen) -> Hold:
        """The request is held for the replica that was chosen, and counts there; for no other."""
        if self.log is not None:
            self.log.write(chosen.line(Held))
        self._let_go(chosen.wait)
        sequence = self.ledger.hold(chosen.replica, chosen.needs)
        return Hold(sequence, chosen.replica, chosen.needs)

    def give_up(self, question: Question, wait: Wait, cause: str) -> None:
        """A request that waited, or could not, gets no replica."""
        now_ms = self.clock_ms()
        self._let_go(wait)
        if self.log is not None:
            self.log.write(_unplaced(question, wait, cause, now_ms))

    def _let_go(self, wait: Wait) -> None:
        if wait.hold is not None:
            self.ledger.let_go(wait.hold.sequence)

    def join(self, url: str, facts: ReplicaFacts) -> int:
        """One more replica, within the room that there is; its number."""
        number = self.ledger.add(facts)
        if self.log is not None:
            self.log.write(Joined(self.clock_ms(), number, url, facts))
        return number

    def read(self, replica: int, gauges: tuple[float, float, float]) -> None:
        """An engine told its gauges: waiting and running requests, KV use; NaN for unknown."""
        now_ms = self.clock_ms()
        self.ledger.read(replica, gauges, now_ms)
        if self.log is not None:
            told = (None if math.isnan(value) else value for value in gauges)
            self.log.write(Reading(replica, now_ms, *told))
        if self.on_news is not None:
            self.on_news(replica)

    def _situation(self, question: Question, among: Sequence[int], view: View) -> Situation:
        now_ms, sequence = self.clock_ms(), self.ledger.next_number
        home = self.homes.of(question.session, now_ms)
        is_logged = self.log is not None  # then also what the policy does not read
        random = self._draw(self.rules.seed, sequence) if self._wants_draw or is_logged else 0.0
        key = question.key if self._wants_key or is_logged else 0
        return Situation(now_ms, question.prompt_tokens, sequence, home, random, key, among, view)


class Ticket:
    """One request's choice. Whoever holds it calls ``end``, whatever happens; once counts."""

    __slots__ = ("_dispatcher", "_first_token_ms", "_is_open", "_slot", "chosen", "replica")

    def __init__(self, dispatcher: Dispatcher, chosen: Chosen, slot: int) -> None:
        self.chosen = chosen  # its view is that of later choices by now
        self.replica = chosen.replica
        self._dispatcher = dispatcher
        self._slot = slot
        self._first_token_ms: float | None = None
        self._is_open = True

    def first_token(self) -> None:
        """The first token of its stream came; calls after the first, or the end, do nothing."""
        if self._first_token_ms is not None or not self._is_open:
            return
        dispatcher = self._dispatcher
        self._first_token_ms = dispatcher.clock_ms()
        dispatcher.ledger.first_token(self._slot, self._first_token_ms)
        if dispatcher.log is not None:
            dispatcher.log.write(FirstToken(self.chosen.sequence, self._first_token_ms))
        if dispatcher.observer is not None:
            ttft_ms = self._first_token_ms - self.chosen.situation.now_ms
            realised_ms = max(0.0, ttft_ms - self.chosen.work_ms)
            dispatcher.observer.observe_first_token(self.replica, ttft_ms)
            dispatcher.observer.observe_wait(
                self.replica, self.chosen.expected_wait_ms, realised_ms
            )
        if dispatcher.on_news is not None:
            dispatcher.on_news(self.replica)

    def end(self, ending: Ending) -> None:
        """Free the place and write the outcome; calls after the first do nothing."""
        if not self._is_open:
            return
        self._is_open = False
        dispatcher = self._dispatcher
        finish_ms = dispatcher.clock_ms()
        dispatcher.ledger.end(self._slot, ending.usage.output_tokens, finish_ms)
        if dispatcher.log is not None:
            dispatcher.log.write(self._outcome(ending, finish_ms))
        if dispatcher.observer is not None:
            reported = ending.usage.cached_tokens
            dispatcher.observer.observe_cached(self.replica, self.chosen.hit_tokens, reported)
            dispatcher.observer.observe_end(self.replica, ending.status)

    def _outcome(self, ending: Ending, finish_ms: float) -> Outcome:
        chosen, first_ms = self.chosen, self._first_token_ms
        realised_ms = None
        if first_ms is not None:
            realised_ms = max(0.0, first_ms - chosen.situation.now_ms - chosen.work_ms)
        return Outcome(
            sequence=chosen.sequence,
            request_id=chosen.question.request_id,
            status=ending.status,
            http_status=ending.http_status,
            first_token_ms=first_ms,
            finish_ms=finish_ms,
            realised_wait_ms=realised_ms,
            usage=ending.usage,
            response_bytes=ending.response_bytes,
            error=ending.error,
        )


def _unplaced(question: Question, wait: Wait, cause: str, now_ms: float) -> Unplaced:
    return Unplaced(
        time_ms=now_ms,
        request_id=question.request_id,
        path=question.path,
        prompt_tokens=None if question.prompt_tokens == UNKNOWN else question.prompt_tokens,
        output_tokens=question.output_tokens,
        block_hashes=hexadecimal(question.chain),
        session=question.session,
        attempt=question.attempt,
        after=None if wait.hold is None else wait.hold.sequence,
        waited_ms=wait.lasted_ms(now_ms),
        cause=cause,
    )
