"""Decisions as the live page shows them: who could have had the request, and at what price.

No text of a client's gets here, not even its request id: of paths only those that are read for
routing are named.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan

import msgspec

from pointsman.dispatch.chosen import Chosen
from pointsman.dispatch.record import Ask, Held, Pair, Unplaced, Usage
from pointsman.policies.policy import (
    CACHED_TOKENS,
    CONTEXT_TOKENS,
    FREE_AT_MS,
    FULL_WORK_MS,
    ITERATION_MS,
    KV_USE,
    LOGGED_ROWS,
    PENDING_TOKENS,
    REQUESTS,
    RUNNING_REQUESTS,
    WAITING_REQUESTS,
    WORK_MS,
)
from pointsman.router.prompt import READ_PATHS
from pointsman.router.ui.watch import Seen

OTHER_PATH = "other"

SENT = "sent"
HELD = "held"
UNPLACED = "unplaced"

Column = Sequence[float]  # of the view, a value a row


class Candidate(msgspec.Struct, frozen=True):
    """One that the policy could have chosen. ``first_token_ms`` is wait and prefill;
    ``longer_wait_ms`` the wait beyond the shortest one of those that are shown."""

    place: Pair
    is_chosen: bool
    wait_ms: float
    longer_wait_ms: float
    prefill_ms: float
    saved_prefill_ms: float
    first_token_ms: float
    cached_tokens: float
    requests: float
    pending_tokens: float
    context_tokens: float
    waiting_requests: float
    running_requests: float
    kv_use_fraction: float
    iteration_ms: float


class Result(msgspec.Struct, frozen=True):
    """How the request went; ``ttft_ms`` from its choice."""

    status: str
    http_status: int | None
    finish_ms: float
    realised_wait_ms: float | None
    usage: Usage
    error: str | None


class Decision(msgspec.Struct, frozen=True):
    """One line of the list; None where it is not known, or not yet.

    ``place``: the replica, and of a pair its decode replica too; ``candidates`` are those of the
    log, ``candidates_in_all`` how many there were. ``session``: its keyed hash.
    """

    sequence: int | None
    kind: str
    time_ms: float
    place: Pair | None
    reason: str
    path: str
    prompt_tokens: int | None
    output_tokens: int
    session: str | None
    attempt: int
    waited_ms: float
    home: Pair | None = None
    wait_ms: float | None = None
    prefill_ms: float | None = None
    cached_tokens: int | None = None
    candidates: list[Candidate] = []
    candidates_in_all: int = 0
    ttft_ms: float | None = None
    result: Result | None = None


def decision_of(seen: Seen, pairs: Sequence[Pair]) -> Decision:
    """The decision; ``pairs``: what the numbers of candidates stand for, where they are pairs."""
    what = seen.what
    if isinstance(what, Unplaced):
        return _unplaced(what)
    return _asked(what.line() if isinstance(what, Chosen) else what, seen, pairs)


def _asked(line: Ask, seen: Seen, pairs: Sequence[Pair]) -> Decision:
    first_ms = seen.first_token_ms
    return Decision(
        sequence=line.sequence,
        kind=HELD if isinstance(line, Held) else SENT,
        time_ms=line.time_ms,
        place=_place(line.replica, pairs),
        reason=line.reason,
        path=_shown(line.path),
        prompt_tokens=line.prompt_tokens,
        output_tokens=line.output_tokens,
        session=line.session,
        attempt=line.attempt,
        waited_ms=line.waited_ms,
        home=None if line.home is None else _place(line.home, pairs),
        wait_ms=line.expected_wait_ms,
        prefill_ms=line.expected_work_ms,
        cached_tokens=line.hit_tokens,
        candidates=_candidates(line, pairs),
        candidates_in_all=len(line.candidates),
        ttft_ms=None if first_ms is None else first_ms - line.time_ms,
        result=_result(seen),
    )


def _unplaced(line: Unplaced) -> Decision:
    return Decision(
        sequence=None,
        kind=UNPLACED,
        time_ms=line.time_ms,
        place=None,
        reason=line.cause,
        path=_shown(line.path),
        prompt_tokens=line.prompt_tokens,
        output_tokens=line.output_tokens,
        session=line.session,
        attempt=line.attempt,
        waited_ms=line.waited_ms,
    )


def _candidates(line: Ask, pairs: Sequence[Pair]) -> list[Candidate]:
    rows = [[nan if value is None else value for value in line.view[name]] for name in LOGGED_ROWS]
    columns: list[Column] = list(zip(*rows, strict=True))
    waits = [max(0.0, column[FREE_AT_MS] - line.time_ms) for column in columns]
    shortest_ms = min(waits)
    return [
        _candidate(column, (number == line.replica, _place(number, pairs)), (wait, shortest_ms))
        for number, column, wait in zip(line.seen, columns, waits, strict=True)
    ]


def _candidate(column: Column, who: tuple[bool, Pair], waits: tuple[float, float]) -> Candidate:
    (is_chosen, place), (wait_ms, shortest_ms) = who, waits
    return Candidate(
        place=place,
        is_chosen=is_chosen,
        wait_ms=wait_ms,
        longer_wait_ms=wait_ms - shortest_ms,
        prefill_ms=column[WORK_MS],
        saved_prefill_ms=column[FULL_WORK_MS] - column[WORK_MS],
        first_token_ms=wait_ms + column[WORK_MS],
        cached_tokens=column[CACHED_TOKENS],
        requests=column[REQUESTS],
        pending_tokens=column[PENDING_TOKENS],
        context_tokens=column[CONTEXT_TOKENS],
        waiting_requests=column[WAITING_REQUESTS],
        running_requests=column[RUNNING_REQUESTS],
        kv_use_fraction=column[KV_USE],
        iteration_ms=column[ITERATION_MS],
    )


def _result(seen: Seen) -> Result | None:
    outcome = seen.outcome
    if outcome is None:
        return None
    return Result(
        outcome.status,
        outcome.http_status,
        outcome.finish_ms,
        outcome.realised_wait_ms,
        outcome.usage,
        outcome.error,
    )


def _place(number: int, pairs: Sequence[Pair]) -> Pair:
    return pairs[number] if pairs else (number, None)


def _shown(path: str) -> str:
    return path if path in READ_PATHS else OTHER_PATH
