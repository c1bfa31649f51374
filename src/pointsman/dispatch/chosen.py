"""A choice, between what it was made from and what is done with it."""

from __future__ import annotations

import msgspec

from pointsman.dispatch.homes import NOWHERE
from pointsman.dispatch.ledger import Needs
from pointsman.dispatch.question import NO_WAIT, Question, Wait
from pointsman.dispatch.record import (
    ALL_CANDIDATES,
    FULL_VIEW_EVERY,
    Choice,
    Held,
    hexadecimal,
)
from pointsman.dispatch.view import UNKNOWN, Situation
from pointsman.policies.policy import CACHED_TOKENS, CANDIDATE, FREE_AT_MS, LOGGED_ROWS


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
    wait: Wait = NO_WAIT

    @property
    def sequence(self) -> int:
        """The number of the choice, as the log counts them."""
        return self.situation.sequence

    @property
    def tokens(self) -> tuple[int, int]:
        """Of its prompt, as it is priced, and the uncached ones there."""
        priced = self.question.priced_tokens
        return priced, priced - self.hit_tokens

    @property
    def needs(self) -> Needs:
        """What it brings there while it is held for the replica."""
        prompt, uncached = self.tokens
        return Needs(self.work_ms, uncached, prompt)

    def kept(self) -> Chosen:
        """The same with a view of its own, which is good beyond the next choice."""
        situation = self.situation
        own = msgspec.structs.replace(situation, view=situation.view.copy())
        return msgspec.structs.replace(self, situation=own)

    def line(self, kind: type[Choice] | type[Held] = Choice) -> Choice | Held:
        """The line of the log."""
        question, situation = self.question, self.situation
        candidates = list(situation.candidates)
        columns = self._columns_seen()
        rows = situation.view[:CANDIDATE].tolist()
        held = rows[CACHED_TOKENS]
        if columns is not None:
            rows = [[row[c] for c in columns] for row in rows]
        hold = self.wait.hold
        return kind(
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
            seen=candidates if columns is None else [candidates[c] for c in columns],
            hits={r: hit for r, hit in zip(candidates, held, strict=True) if hit > 0.0},
            view=dict(zip(LOGGED_ROWS, rows, strict=True)),
            replica=self.replica,
            reason=self.reason,
            expected_wait_ms=self.expected_wait_ms,
            expected_work_ms=self.work_ms,
            attempt=question.attempt,
            after=None if hold is None else hold.sequence,
            waited_ms=self.wait.lasted_ms(situation.now_ms),
        )

    def _columns_seen(self) -> list[int] | None:
        """None, all candidates, where they are few; else the one chosen, the one with the shortest
        wait and the one that holds most."""
        view = self.situation.view
        count = view.shape[1]
        if count <= ALL_CANDIDATES or self.situation.sequence % FULL_VIEW_EVERY == 0:
            return None
        contenders = {int(view[FREE_AT_MS].argmin()), int(view[CACHED_TOKENS].argmax())}
        return sorted({self.candidate, *contenders})
