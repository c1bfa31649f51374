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
from pointsman.dispatch.view import UNKNOWN, Decision, Situation, decide, view_of, wait_ms
from pointsman.policies.policy import CACHED_TOKENS, Policy
from pointsman.workload.workload import Floats


class DecisionSink(Protocol):
    """Where choices and outcomes are kept."""

    def write(self, line: Choice | Outcome) -> None:
        """Take one line."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about one request; tokens are estimates."""

    request_id: str
    path: str = "/"
    prompt_tokens: int = UNKNOWN
    output_tokens: int = 0
    chain: Chain = EMPTY_CHAIN
    session: str | None = None


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
    """How choices are made: by which policy, with which price of work, with which draws."""

    policy: Policy
    costs: StageCosts = field(default_factory=StageCosts)
    seed: int = 0


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

        Raises InputError where the policy is broken.
        """
        situation = self._situation(question, candidates or self._everyone)
        decision = decide(self.rules.policy, situation)
        self._routed += 1
        replica = situation.candidates[decision.candidate]
        work_ms = self._work_ms(question, float(situation.view[CACHED_TOKENS, decision.candidate]))
        reservation = self.ledger.reserve(replica, work_ms)
        self.ledger.settle(question.session, replica)
        self.prefixes.hold(question.chain, replica)
        ticket = Ticket(self, question, situation, decision, reservation)
        if self.log is not None:
            self.log.write(ticket.choice())
        return ticket

    def _situation(self, question: Question, candidates: Sequence[int]) -> Situation:
        now_ms = self.clock_ms()
        self.prefixes.fill(question.chain, self._cached)
        return Situation(
            now_ms=now_ms,
            prompt_tokens=question.prompt_tokens,
            sequence=self._routed,
            home=self.ledger.home(question.session),
            random=draw(self.rules.seed, self._routed),
            candidates=candidates,
            view=view_of(self.ledger, self._cached, candidates, now_ms),
        )

    def _work_ms(self, question: Question, cached_tokens: float) -> float:
        uncached_tokens = max(0.0, question.prompt_tokens - cached_tokens)
        return float(stages_of(uncached_tokens, question.output_tokens, self.rules.costs).total_ms)


class Ticket:
    """One request's choice. Whoever holds it calls ``end``, whatever happens; once counts."""

    __slots__ = ("_decision", "_dispatcher", "_question", "_reservation", "_situation")

    def __init__(
        self,
        dispatcher: Dispatcher,
        question: Question,
        situation: Situation,
        decision: Decision,
        reservation: Reservation,
    ) -> None:
        self._dispatcher = dispatcher
        self._question = question
        self._situation = situation
        self._decision = decision
        self._reservation = reservation

    @property
    def replica(self) -> int:
        """Where the request goes."""
        return self._reservation.replica

    @property
    def reason(self) -> str:
        """Why, in the policy's words."""
        return self._dispatcher.rules.policy.reasons[self._decision.reason]

    @property
    def expected_wait_ms(self) -> float:
        """How long it is expected to wait there."""
        return wait_ms(self._situation, self._decision.candidate)

    def end(self, ending: Ending) -> None:
        """Free the place and write the outcome; calls after the first do nothing."""
        log = self._dispatcher.log
        if not self._reservation.free() or log is None:
            return
        log.write(
            Outcome(
                sequence=self._situation.sequence,
                request_id=self._question.request_id,
                status=ending.status,
                http_status=ending.http_status,
                first_token_ms=ending.first_token_ms,
                finish_ms=self._dispatcher.clock_ms(),
                usage=ending.usage,
                response_bytes=ending.response_bytes,
                error=ending.error,
            )
        )

    def choice(self) -> Choice:
        """The line of the log."""
        question, situation = self._question, self._situation
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
            expected_work_ms=self._reservation.work_ms,
        )
