"""One request from question to answer: what is known, what the policy says, what is remembered.

Question  ->  Situation  ->  decide  ->  ledger, session home, prefix holder, log line
                                            |
Ticket.first_token(...), then Ticket.end(...)  <-  what came back; the end exactly once
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

import msgspec
import numpy as np

from pointsman.core.checks import check_seed
from pointsman.dispatch.draws import draw
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.homes import NOWHERE, Homes
from pointsman.dispatch.ledger import Asked, Ids, Ledger
from pointsman.dispatch.prefix_index import EMPTY_CHAIN, Chain, PrefixIndex
from pointsman.dispatch.record import (
    ALL_CANDIDATES,
    CANCELLED,
    FULL_VIEW_EVERY,
    NO_USAGE,
    Choice,
    Event,
    FirstToken,
    Joined,
    Outcome,
    Reading,
    Usage,
    hexadecimal,
    hits_of,
    rows_of,
)
from pointsman.dispatch.view import UNKNOWN, Decision, Situation, decide, shown_rows, wait_ms
from pointsman.policies.policy import CACHED_TOKENS, FREE_AT_MS, RANDOM, ROWS, WORK_MS, Policy, View


class DecisionSink(Protocol):
    """Where choices and outcomes are kept."""

    lost_lines: int

    def write(self, line: Event) -> None:
        """Take one line."""


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


class Question(msgspec.Struct, frozen=True):
    """What is asked about one request; tokens are estimates.

    ``unread_tokens`` prices a prompt that was not read, whose ``prompt_tokens`` are UNKNOWN.
    ``streams``: the answer shows when its first token comes.
    ``attempt`` counts the choices for the same request.
    """

    request_id: str
    path: str = "/"
    prompt_tokens: int = UNKNOWN
    output_tokens: int = 0
    chain: Chain = EMPTY_CHAIN
    session: str | None = None
    unread_tokens: int = 0
    streams: bool = False
    attempt: int = 1
    model: str | None = None

    @property
    def priced_tokens(self) -> int:
        """Tokens of the prompt, as it is priced."""
        is_unread = self.prompt_tokens == UNKNOWN
        return self.unread_tokens if is_unread else self.prompt_tokens

    @property
    def key(self) -> int:
        """The same for requests of one session, else of one first block; 0 for neither."""
        if self.session is not None:
            return hash_of(self.session)
        return self.chain.hashes[0] >> 1 if self.chain.hashes else 0


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


class Chosen(msgspec.Struct, frozen=True, gc=False):
    """A choice before anything is changed by it.

    ``candidate``: the column of the view. ``work_ms``: what the prefill is expected to take there,
    ``hit_tokens``: of the prompt, as it is priced, what is held there.
    """

    question: Question
    situation: Situation
    candidate: int
    replica: int
    reason: str
    expected_wait_ms: float
    work_ms: float
    hit_tokens: int

    def line(self) -> Choice:
        """The line of the log."""
        question, situation = self.question, self.situation
        candidates = list(situation.candidates)
        columns = self._columns_seen()
        return Choice(
            sequence=situation.sequence,
            time_ms=situation.now_ms,
            request_id=question.request_id,
            path=question.path,
            prompt_tokens=None if question.prompt_tokens == UNKNOWN else question.prompt_tokens,
            output_tokens=question.output_tokens,
            block_hashes=hexadecimal(question.chain),
            session=question.session,
            home=None if situation.home == NOWHERE else situation.home,
            random=situation.random,
            key=situation.key,
            priced_tokens=question.priced_tokens,
            shows_first_token=question.streams,
            candidates=candidates,
            seen=[candidates[column] for column in columns],
            hits=hits_of(situation.view, candidates),
            view=rows_of(situation.view, columns),
            replica=self.replica,
            reason=self.reason,
            expected_wait_ms=self.expected_wait_ms,
            expected_work_ms=self.work_ms,
            attempt=question.attempt,
        )

    def _columns_seen(self) -> list[int]:
        """All candidates where they are few; else the one chosen, the one with the shortest wait
        and the one that holds most."""
        view = self.situation.view
        count = view.shape[1]
        if count <= ALL_CANDIDATES or self.situation.sequence % FULL_VIEW_EVERY == 0:
            return list(range(count))
        contenders = {int(view[FREE_AT_MS].argmin()), int(view[CACHED_TOKENS].argmax())}
        return sorted({self.candidate, *contenders})


def chosen_of(
    question: Question, situation: Situation, decision: Decision, policy: Policy
) -> Chosen:
    """What a decision means for the request."""
    candidate, view = decision.candidate, situation.view
    return Chosen(
        question,
        situation,
        candidate,
        situation.candidates[candidate],
        policy.reasons[decision.reason],
        wait_ms(situation, candidate),
        float(view[WORK_MS, candidate]),
        int(view[CACHED_TOKENS, candidate]),
    )


class Dispatcher:
    """Answers questions one after the other, each with the ones before it accounted for.

    ``facts``: what is known of each replica; there may be ``room`` in all. ``clock_ms`` is
    milliseconds since the start of the log and never goes back.
    """

    def __init__(
        self,
        rules: Rules,
        facts: Sequence[ReplicaFacts],
        clock_ms: Callable[[], float],
        log: DecisionSink | None = None,
        room: int | None = None,
    ) -> None:
        self.rules = rules
        self.clock_ms = clock_ms
        self.log = log
        self.observer: Observer | None = None
        self.ledger = Ledger(facts, room)
        self.homes = Homes()
        self.prefixes = PrefixIndex(self.ledger.room)
        self._shown_rows = shown_rows(rules.policy)
        # Whether what the policy does not read is wanted all the same, by the log.
        self._keeps_all = log is not None or bool(rules.policy.reads & {RANDOM, "key"})
        self._everyone = np.zeros(0, dtype=np.int32)
        self._views: dict[int, tuple[View, View]] = {}
        self._routed = 0

    def choose(self, question: Question, candidates: Sequence[int] | None = None) -> Ticket:
        """Decide among the candidates (None: all replicas), and account for the decision.

        Raises InputError where the policy is broken. There must be a candidate: whoever has none
        asks nobody.
        """
        among = range(self.ledger.count) if candidates is None else candidates
        assert among, "nothing to choose from"
        policy = self.rules.policy
        situation = self._situation(question, among)
        decision = decide(policy, situation, self.ledger.known)
        chosen = chosen_of(question, situation, decision, policy)
        if self.log is not None:
            self.log.write(chosen.line())
        # What can fail has been done; else the log would lack a sequence, or have one twice.
        self._routed += 1
        self.homes.settle(question.session, chosen.replica, situation.now_ms)
        self.prefixes.hold(question.chain, chosen.replica)
        priced = question.priced_tokens
        tokens = (priced, priced - chosen.hit_tokens)
        slot = self.ledger.send(chosen.replica, tokens, situation.now_ms, question.streams)
        ticket = Ticket(self, chosen, slot)
        if self.observer is not None:
            took_ms = self.clock_ms() - situation.now_ms
            self.observer.observe_choice(chosen.replica, chosen.reason, took_ms)
        return ticket

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

    def _situation(self, question: Question, candidates: Sequence[int]) -> Situation:
        now_ms = self.clock_ms()
        views = self._views_of(len(candidates))
        sizes = (question.priced_tokens, self._shown_rows)
        asked = Asked(now_ms, sizes, self._ids_of(candidates), views)
        self.prefixes.fill(question.chain, self.ledger.cached)
        longest = self.ledger.fill(asked)
        return Situation(
            now_ms=now_ms,
            prompt_tokens=question.prompt_tokens,
            sequence=self._routed,
            home=self.homes.of(question.session, now_ms),
            random=draw(self.rules.seed, self._routed) if self._keeps_all else 0.0,
            key=question.key if self._keeps_all else 0,
            candidates=candidates,
            view=views[0],
            shown=views[1],
            longest_hit_tokens=longest,
        )

    def _ids_of(self, candidates: Sequence[int]) -> Ids:
        if len(candidates) != self.ledger.count:
            return np.array(candidates, dtype=np.int32)
        if len(self._everyone) != len(candidates):
            self._everyone = np.arange(len(candidates), dtype=np.int32)
        return self._everyone

    def _views_of(self, count: int) -> tuple[View, View]:
        """Two views of so many candidates; they serve one choice after the other."""
        views = self._views.get(count)
        if views is None:
            views = self._views[count] = (np.empty((ROWS, count)), np.empty((ROWS, count)))
        return views


class Ticket:
    """One request's choice. Whoever holds it calls ``end``, whatever happens; once counts."""

    __slots__ = (
        "_dispatcher",
        "_first_token_ms",
        "_hit_tokens",
        "_is_open",
        "_request_id",
        "_sent_ms",
        "_sequence",
        "_slot",
        "_work_ms",
        "expected_wait_ms",
        "reason",
        "replica",
    )

    def __init__(self, dispatcher: Dispatcher, chosen: Chosen, slot: int) -> None:
        self.replica = chosen.replica
        self.reason = chosen.reason
        self.expected_wait_ms = chosen.expected_wait_ms
        self._dispatcher = dispatcher
        self._request_id = chosen.question.request_id
        self._sequence = chosen.situation.sequence
        self._sent_ms = chosen.situation.now_ms
        self._work_ms = chosen.work_ms
        self._hit_tokens = chosen.hit_tokens
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
            dispatcher.log.write(FirstToken(self._sequence, self._first_token_ms))
        if dispatcher.observer is not None:
            ttft_ms = self._first_token_ms - self._sent_ms
            realised_ms = max(0.0, ttft_ms - self._work_ms)
            dispatcher.observer.observe_first_token(self.replica, ttft_ms)
            dispatcher.observer.observe_wait(self.replica, self.expected_wait_ms, realised_ms)

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
            dispatcher.observer.observe_cached(self.replica, self._hit_tokens, reported)
            dispatcher.observer.observe_end(self.replica, ending.status)

    def _outcome(self, ending: Ending, finish_ms: float) -> Outcome:
        first_ms = self._first_token_ms
        realised_ms = None
        if first_ms is not None:
            realised_ms = max(0.0, first_ms - self._sent_ms - self._work_ms)
        return Outcome(
            sequence=self._sequence,
            request_id=self._request_id,
            status=ending.status,
            http_status=ending.http_status,
            first_token_ms=first_ms,
            finish_ms=finish_ms,
            realised_wait_ms=realised_ms,
            usage=ending.usage,
            response_bytes=ending.response_bytes,
            error=ending.error,
        )


def hash_of(name: str) -> int:
    """63 bits of a name."""
    return (
        int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()) >> 1
    )
