"""One request from question to answer: what is known, what the policy says, what is remembered.

Question  ->  Situation  ->  decide  ->  reservation, session home, prefix holder, log line
                                            |
Ticket.end(...)  <-  the request's end, exactly once
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from pointsman.core.checks import check_seed
from pointsman.core.errors import wrong_value
from pointsman.costs.stages import StageCosts, stages_of
from pointsman.dispatch.draws import draw
from pointsman.dispatch.ledger import NOWHERE, Ledger, Reservation
from pointsman.dispatch.prefix_index import EMPTY_CHAIN, Chain, PrefixIndex
from pointsman.dispatch.record import (
    CANCELLED,
    NO_USAGE,
    Choice,
    Outcome,
    Usage,
    hexadecimal,
    signal_rows,
)
from pointsman.dispatch.view import UNKNOWN, Situation, decide, view_of, wait_ms
from pointsman.policies.policy import CACHED_TOKENS, FULL_WORK_MS, WORK_MS, Policy, View
from pointsman.workload.workload import MAX_TIME_MS, MAX_TOKENS, Floats


class DecisionSink(Protocol):
    """Where choices and outcomes are kept."""

    def write(self, line: Choice | Outcome) -> None:
        """Take one line."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about one request; tokens are estimates.

    ``unread_tokens`` prices a prompt that was not read, whose ``prompt_tokens`` are UNKNOWN.
    """

    request_id: str
    path: str = "/"
    prompt_tokens: int = UNKNOWN
    output_tokens: int = 0
    chain: Chain = EMPTY_CHAIN
    session: str | None = None
    unread_tokens: int = 0
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """How a request went; the defaults are those of one that was given up before its answer."""

    status: str = CANCELLED
    http_status: int | None = None
    first_token_ms: float | None = None
    usage: Usage = NO_USAGE
    response_bytes: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """How choices are made: by which policy, with which price of work, with which draws.

    Raises InputError for a seed outside 0..2**63-1, and for costs that price the largest request
    beyond 1e15 ms.
    """

    policy: Policy
    costs: StageCosts = field(default_factory=StageCosts)
    seed: int = 0

    def __post_init__(self) -> None:
        check_seed("draws", self.seed)
        dearest_ms = float(stages_of(MAX_TOKENS, MAX_TOKENS, self.costs).total_ms)
        if not dearest_ms <= MAX_TIME_MS:
            what = f"the work of {MAX_TOKENS} prompt and {MAX_TOKENS} output tokens"
            raise wrong_value("costs", what, dearest_ms, f"at most {MAX_TIME_MS:g} ms")


@dataclass(frozen=True, slots=True)
class Chosen:
    """A choice before anything is changed by it. ``work_ms``: what the request is to cost."""

    question: Question
    situation: Situation
    replica: int
    reason: str
    expected_wait_ms: float
    work_ms: float

    def line(self) -> Choice:
        """The line of the log."""
        question, situation = self.question, self.situation
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
            candidates=list(situation.candidates),
            view=signal_rows(situation),
            replica=self.replica,
            reason=self.reason,
            expected_wait_ms=self.expected_wait_ms,
            expected_work_ms=self.work_ms,
        )


class Dispatcher:
    """Answers questions one after the other, each with the ones before it accounted for.

    ``clock_ms`` is milliseconds since the start of the log and never goes back.
    """

    def __init__(
        self, rules: Rules, replicas: int, clock_ms: Callable[[], float], log: DecisionSink | None
    ) -> None:
        self.rules = rules
        self.clock_ms = clock_ms
        self.log = log
        self.ledger = Ledger(replicas)
        self.prefixes = PrefixIndex(replicas)
        self._everyone = list(range(replicas))
        self._cached: Floats = np.zeros(replicas, dtype=np.float64)
        self._routed = 0

    def choose(self, question: Question, candidates: Sequence[int] | None = None) -> Ticket:
        """Decide among the candidates (None: all replicas), and account for the decision.

        Raises InputError where the policy is broken. There must be a candidate: whoever has none
        asks nobody.
        """
        among = self._everyone if candidates is None else candidates
        assert among, "nothing to choose from"
        chosen = self._chosen(question, self._situation(question, among))
        if self.log is not None:
            self.log.write(chosen.line())
        # What can fail has been done; else the log would lack a sequence, or have one twice.
        self._routed += 1
        self.ledger.settle(question.session, chosen.replica)
        self.prefixes.hold(question.chain, chosen.replica)
        return Ticket(self, chosen, self.ledger.reserve(chosen.replica, chosen.work_ms))

    def _chosen(self, question: Question, situation: Situation) -> Chosen:
        policy = self.rules.policy
        decision = decide(policy, situation)
        cached_tokens = float(situation.view[CACHED_TOKENS, decision.candidate])
        return Chosen(
            question=question,
            situation=situation,
            replica=situation.candidates[decision.candidate],
            reason=policy.reasons[decision.reason],
            expected_wait_ms=wait_ms(situation, decision.candidate),
            work_ms=self._work_ms(question, cached_tokens),
        )

    def _situation(self, question: Question, candidates: Sequence[int]) -> Situation:
        now_ms = self.clock_ms()
        self.prefixes.fill(question.chain, self._cached)
        view = view_of(self.ledger, self._cached, candidates, now_ms)
        if "work" in self.rules.policy.reads:
            self._price_prompt(question, view)
        return Situation(
            now_ms=now_ms,
            prompt_tokens=question.prompt_tokens,
            sequence=self._routed,
            home=self.ledger.home(question.session),
            random=draw(self.rules.seed, self._routed),
            candidates=candidates,
            view=view,
        )

    def _price_prompt(self, question: Question, view: View) -> None:
        """Write what the prompt is expected to take, with and without what is cached."""
        tokens = _priced_tokens(question)
        uncached = np.maximum(0.0, tokens - view[CACHED_TOKENS])
        view[WORK_MS] = stages_of(uncached, 0, self.rules.costs).total_ms
        view[FULL_WORK_MS] = stages_of(tokens, 0, self.rules.costs).total_ms

    def _work_ms(self, question: Question, cached_tokens: float) -> float:
        uncached_tokens = max(0.0, _priced_tokens(question) - cached_tokens)
        return float(stages_of(uncached_tokens, question.output_tokens, self.rules.costs).total_ms)


def _priced_tokens(question: Question) -> int:
    """Tokens of the prompt, as it is priced."""
    is_unread = question.prompt_tokens == UNKNOWN
    return question.unread_tokens if is_unread else question.prompt_tokens


class Ticket:
    """One request's choice. Whoever holds it calls ``end``, whatever happens; once counts."""

    __slots__ = ("_chosen", "_dispatcher", "_reservation")

    def __init__(self, dispatcher: Dispatcher, chosen: Chosen, reservation: Reservation) -> None:
        self._dispatcher = dispatcher
        self._chosen = chosen
        self._reservation = reservation

    @property
    def replica(self) -> int:
        """Where the request goes."""
        return self._chosen.replica

    @property
    def reason(self) -> str:
        """Why, in the policy's words."""
        return self._chosen.reason

    @property
    def expected_wait_ms(self) -> float:
        """How long it is expected to wait there."""
        return self._chosen.expected_wait_ms

    def end(self, ending: Ending) -> None:
        """Free the place and write the outcome; calls after the first do nothing."""
        log = self._dispatcher.log
        if not self._reservation.free() or log is None:
            return
        log.write(
            Outcome(
                sequence=self._chosen.situation.sequence,
                request_id=self._chosen.question.request_id,
                status=ending.status,
                http_status=ending.http_status,
                first_token_ms=ending.first_token_ms,
                finish_ms=self._dispatcher.clock_ms(),
                usage=ending.usage,
                response_bytes=ending.response_bytes,
                error=ending.error,
            )
        )
