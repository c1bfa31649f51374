"""What a choice is made from, and the one place where a policy is called outside the simulator.

    column of the view      0   1   2          candidate, as policies count
    candidates              0   2   3          the replica that it stands for

The router makes a Situation of its live state, the replay makes one of a line of a log; both hand
it to ``decide``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pointsman.core.errors import InputError
from pointsman.dispatch.ledger import NOWHERE, Ledger
from pointsman.policies.policy import (
    CACHED_TOKENS,
    FREE_AT_MS,
    RANDOM,
    REQUEST,
    REQUESTS,
    ROWS,
    SESSION,
    SIGNAL_OF_ROW,
    Policy,
    View,
)
from pointsman.workload.workload import Floats

UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Situation:
    """A request and the fleet at the instant of the choice, with every signal filled in."""

    now_ms: float
    prompt_tokens: int  # UNKNOWN where it is
    sequence: int
    home: int  # a replica, or NOWHERE
    random: float
    candidates: Sequence[int]  # replicas
    view: View  # a column a candidate


class Decision(NamedTuple):
    """A candidate (a column of the view), and an index into the policy's reasons."""

    candidate: int
    reason: int


def view_of(ledger: Ledger, cached: Floats, candidates: Sequence[int], now_ms: float) -> View:
    """The view of the candidates: our own accounts, and ``cached`` tokens of every replica."""
    chosen = np.asarray(candidates, dtype=np.intp)
    view = np.full((ROWS, chosen.shape[0]), np.nan, dtype=np.float64)
    view[FREE_AT_MS] = now_ms + ledger.outstanding_ms[chosen]
    view[REQUESTS] = ledger.requests[chosen]
    view[CACHED_TOKENS] = cached[chosen]
    return view


def decide(policy: Policy, situation: Situation) -> Decision:
    """What the policy chooses; it sees only what it ``reads``.

    Raises InputError when it chooses no candidate or names no reason of its own.
    """
    home = _home_column(situation) if SESSION in policy.reads else NOWHERE
    random = situation.random if RANDOM in policy.reads else 0.0
    cached = float(situation.view[CACHED_TOKENS].max()) if "prefix" in policy.reads else 0.0
    request = np.zeros((), dtype=REQUEST)
    request["now_ms"], request["prompt_tokens"] = situation.now_ms, situation.prompt_tokens
    request["sequence"], request["home"] = situation.sequence, home
    request["longest_hit_tokens"], request["random"] = cached, random
    candidate, reason = policy.choose(
        request[()], _visible(policy, situation.view), policy.parameter_values
    )
    if not (0 <= candidate < len(situation.candidates) and 0 <= reason < len(policy.reasons)):
        raise InputError(
            f"policy {policy.name} chose candidate {candidate} for reason {reason} at request"
            f" {situation.sequence}; expected a candidate in 0..{len(situation.candidates) - 1}"
            f" and a reason in 0..{len(policy.reasons) - 1}"
        )
    return Decision(candidate, reason)


def wait_ms(situation: Situation, candidate: int) -> float:
    """How long a request sent to the candidate is expected to wait before it starts."""
    return max(0.0, float(situation.view[FREE_AT_MS, candidate]) - situation.now_ms)


def _home_column(situation: Situation) -> int:
    if situation.home == NOWHERE or situation.home not in situation.candidates:
        return NOWHERE
    return situation.candidates.index(situation.home)


def _visible(policy: Policy, view: View) -> Any:
    hidden = [row for row, signal in enumerate(SIGNAL_OF_ROW) if signal not in policy.reads]
    if not hidden:
        return view
    visible = view.copy()
    visible[hidden] = np.nan
    return visible
