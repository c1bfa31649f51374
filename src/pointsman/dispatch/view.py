"""What a choice is made from, and what a policy chooses from it.

    column of the view      0   1   2          candidate, as policies count
    candidates              0   2   3          the replica that it stands for

The replay makes a Situation of a line of a log and hands it to ``decide``; the router does the same
in one compiled call (choosing.py), and makes one for its log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from pointsman.core.errors import InputError
from pointsman.dispatch.homes import NOWHERE
from pointsman.policies.in_flight import InFlight
from pointsman.policies.policy import (
    CACHED_TOKENS,
    IN_FLIGHT,
    RANDOM,
    REQUEST,
    SESSION,
    SIGNAL_OF_ROW,
    Policy,
    View,
)

UNKNOWN = -1


class Situation(msgspec.Struct, frozen=True, gc=False):
    """A request and the fleet at the instant of the choice: ``view`` has every signal filled in."""

    now_ms: float
    prompt_tokens: int  # UNKNOWN where it is
    sequence: int
    home: int  # a replica, or NOWHERE
    random: float
    key: int
    candidates: Sequence[int]  # replicas
    view: View  # a column a candidate


class Decision(NamedTuple):
    """A candidate (a column of the view), and an index into the policy's reasons."""

    candidate: int
    reason: int


def shown_rows(policy: Policy) -> int:
    """A bit for each row of a view that the policy reads."""
    return sum(1 << row for row, name in enumerate(SIGNAL_OF_ROW) if name in policy.reads)


def shown_of(view: View, rows: int) -> View:
    """The view with NaN where the policy is not to look."""
    hidden = [row for row in range(view.shape[0]) if not rows >> row & 1]
    shown = view.copy()
    shown[hidden] = np.nan
    return shown


def decide(policy: Policy, situation: Situation, known: InFlight) -> Decision:
    """What the policy chooses; it sees only what it ``reads``.

    Raises InputError when it chooses no candidate or names no reason of its own.
    """
    shown = shown_of(situation.view, shown_rows(policy))
    arguments = (request_of(policy, situation), shown, policy.parameter_values)
    if IN_FLIGHT in policy.reads:
        decision = Decision(*policy.choose(*arguments, known))
    else:
        decision = Decision(*policy.choose(*arguments))
    check_decision(policy, decision, (situation.sequence, len(situation.candidates)))
    return decision


def check_decision(policy: Policy, decision: tuple[int, int], asked: tuple[int, int]) -> None:
    """Refuse what a broken policy chose; ``asked``: which choice it is, of how many candidates."""
    (candidate, reason), (sequence, candidates) = decision, asked
    if not (0 <= candidate < candidates and 0 <= reason < len(policy.reasons)):
        raise InputError(
            f"policy {policy.name} chose candidate {candidate} for reason {reason} at request"
            f" {sequence}; expected a candidate in 0..{candidates - 1}"
            f" and a reason in 0..{len(policy.reasons) - 1}"
        )


def request_of(policy: Policy, situation: Situation) -> Any:
    """The request as the policy gets it; what it does not read is not there."""
    reads = policy.reads
    hit = float(situation.view[CACHED_TOKENS].max()) if "prefix" in reads else 0.0
    fields = (
        situation.now_ms,
        situation.prompt_tokens,
        situation.sequence,
        _home_column(situation) if SESSION in reads else NOWHERE,
        hit,
        situation.random if RANDOM in reads else 0.0,
        situation.key if "key" in reads else 0,
    )
    return np.array(fields, dtype=REQUEST)[()]


def _home_column(situation: Situation) -> int:
    if situation.home == NOWHERE or situation.home not in situation.candidates:
        return NOWHERE
    return situation.candidates.index(situation.home)
