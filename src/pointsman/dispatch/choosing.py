"""A policy with all that it looks at, ready to be asked about one request after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pointsman.core.handles import Handle, function_address
from pointsman.dispatch.choice_kernels import desk_of, look, look_at_all
from pointsman.dispatch.homes import NOWHERE
from pointsman.dispatch.ledger import Ids, Ledger
from pointsman.dispatch.prefix_index import Chain, PrefixIndex
from pointsman.dispatch.question import Question
from pointsman.dispatch.view import Situation, check_decision, shown_rows
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


# The candidate that the policy chose, an index into its reasons, and what is expected there: the
# wait and the work in milliseconds, and tokens of the prompt that it holds.
Looked = tuple[int, int, float, float, float]


class Desk(NamedTuple):
    """What a choice among so many candidates is made on: ``view`` is of all that is known."""

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
        self._desks: dict[int, Desk] = {}  # by how many candidates there are
        self._last: tuple[Sequence[int], Ids] = (), np.zeros(0, dtype=np.int32)

    def look(self, question: Question, situation: Situation, desk: Desk) -> Looked:
        """The choice; the situation's view, which is the desk's, is filled, until the next one.

        Raises InputError when the policy chooses no candidate or names no reason of its own.
        """
        chain, candidates = question.chain, situation.candidates
        reads_session, reads_random, reads_key = self._reads
        looked: Looked = self._look(
            desk.handle,
            chain.array,
            self._ids_of(candidates),
            (
                situation.prompt_tokens,
                question.priced_tokens,
                chain.block_tokens,
                situation.sequence,
                situation.home if reads_session else NOWHERE,
                situation.key if reads_key else 0,
            ),
            (situation.now_ms, situation.random if reads_random else 0.0),
        )
        if not (0 <= looked[0] < len(candidates) and 0 <= looked[1] < self._reasons):
            check_decision(self._policy, looked[:2], (situation.sequence, len(candidates)))
        return looked

    def desk(self, count: int, chain: Chain, accounts: tuple[Ledger, PrefixIndex]) -> Desk:
        """For a choice among so many candidates, and a prompt of that chain."""
        ledger, prefixes = accounts
        parts, blocks = self._parts, len(chain.array)
        if parts is None or parts[0] is not ledger.handle or parts[1] is not prefixes.handle:
            self._parts = ledger.handle, prefixes.handle
            self._desks.clear()
        if blocks > len(self._room):
            self._room = np.zeros(blocks, dtype=np.uint64)
            self._desks.clear()
        return self._desks.get(count) or self._new_desk(count)

    def _new_desk(self, count: int) -> Desk:
        assert self._parts is not None
        view, shown = np.empty((ROWS, count)), np.empty((ROWS, count))
        arrays = (self._room, view, shown, self._request, self._policy.parameter_values)
        desk = Desk(desk_of(self._parts, arrays, self._rules), view, shown)
        self._desks[count] = desk
        return desk

    def _ids_of(self, candidates: Sequence[int]) -> Ids:
        last, ids = self._last
        if candidates is not last:
            ids = np.array(candidates, dtype=np.int32)
            self._last = candidates, ids
        return ids
