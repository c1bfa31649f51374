"""A policy with all that it looks at, ready to be asked about one request after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pointsman.core.handles import Handle, function_address
from pointsman.dispatch.choice_kernels import desk_of, look, look_at_all
from pointsman.dispatch.homes import NOWHERE
from pointsman.dispatch.ledger import Ids, Ledger
from pointsman.dispatch.prefix_index import PrefixIndex
from pointsman.dispatch.question import Question
from pointsman.dispatch.view import check_decision, shown_rows
from pointsman.policies.policy import (
    IN_FLIGHT,
    RANDOM,
    REQUEST,
    ROWS,
    SESSION,
    Policy,
    View,
    signature_for,
)

FIRST_ROOM = 512  # blocks of a prompt; more when one has more


class Looked(NamedTuple):
    """The candidate that the policy chose, an index into its reasons, and what is expected there.

    ``hit_tokens``: of the prompt that it holds; ``longest_hit_tokens``: the most of any candidate.
    """

    candidate: int
    reason: int
    wait_ms: float
    work_ms: float
    hit_tokens: float
    longest_hit_tokens: float


class Instant(NamedTuple):
    """What is known when a choice is made, beside the request and the accounts."""

    now_ms: float
    sequence: int
    home: int
    random: float
    key: int


class _Desk(NamedTuple):
    handle: Handle
    view: View
    shown: View  # the handle has its address


class Choosing:
    """Asks one policy."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        compiled = look_at_all if IN_FLIGHT in policy.reads else look
        self._look = compiled.dispatcher  # looked up once: it is called for every request
        address = function_address(policy.choose, signature_for(policy.reads))
        self._rules = address, shown_rows(policy)
        self._reads = SESSION in policy.reads, RANDOM in policy.reads, "key" in policy.reads
        self._reasons = len(policy.reasons)
        self._request = np.zeros(1, dtype=REQUEST)
        self._room = np.zeros(FIRST_ROOM, dtype=np.uint64)
        self._parts: tuple[Handle, Handle] | None = None
        self._desks: dict[int, _Desk] = {}  # by how many candidates there are
        self._everyone: Ids = np.zeros(0, dtype=np.int32)

    def look(
        self,
        question: Question,
        candidates: Sequence[int],
        instant: Instant,
        accounts: tuple[Ledger, PrefixIndex],
    ) -> tuple[Looked, View]:
        """The choice, and the view of all that is known, which is good until the next one.

        Raises InputError when the policy chooses no candidate or names no reason of its own.
        """
        chain = question.chain
        desk = self._desk_for(len(candidates), len(chain), accounts)
        reads_session, reads_random, reads_key = self._reads
        counts = (
            question.prompt_tokens,
            question.priced_tokens,
            chain.block_tokens,
            instant.sequence,
            instant.home if reads_session else NOWHERE,
            instant.key if reads_key else 0,
        )
        numbers = instant.now_ms, instant.random if reads_random else 0.0
        ids = self._ids_of(candidates, accounts[0].count)
        looked = Looked(*self._look(desk.handle, chain.array, ids, counts, numbers))
        if not (0 <= looked.candidate < len(candidates) and 0 <= looked.reason < self._reasons):
            check_decision(self._policy, looked[:2], (instant.sequence, len(candidates)))
        return looked, desk.view

    def _desk_for(self, count: int, blocks: int, accounts: tuple[Ledger, PrefixIndex]) -> _Desk:
        ledger, prefixes = accounts
        parts = self._parts
        if parts is None or parts[0] is not ledger.handle or parts[1] is not prefixes.handle:
            self._parts = ledger.handle, prefixes.handle
            self._desks.clear()
        if blocks > len(self._room):
            self._room = np.zeros(blocks, dtype=np.uint64)
            self._desks.clear()
        return self._desks.get(count) or self._new_desk(count)

    def _new_desk(self, count: int) -> _Desk:
        assert self._parts is not None
        view, shown = np.empty((ROWS, count)), np.empty((ROWS, count))
        arrays = (self._room, view, shown, self._request, self._policy.parameter_values)
        desk = _Desk(desk_of(self._parts, arrays, self._rules), view, shown)
        self._desks[count] = desk
        return desk

    def _ids_of(self, candidates: Sequence[int], replicas: int) -> Ids:
        if len(candidates) != replicas:
            return np.array(candidates, dtype=np.int32)
        if len(self._everyone) != replicas:
            self._everyone = np.arange(replicas, dtype=np.int32)
        return self._everyone
