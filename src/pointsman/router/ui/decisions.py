"""Decisions as the live page shows them: who could have had the request, and at what price.

No text of a client's gets here, not even its request id: of paths only those that are read for
routing are named.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from pointsman.dispatch.chosen import Chosen
from pointsman.dispatch.homes import NOWHERE
from pointsman.dispatch.record import ALL_CANDIDATES, Ask, Held, Pair, Unplaced, Usage
from pointsman.dispatch.view import UNKNOWN
from pointsman.policies.policy import (
    CACHED_TOKENS,
    CONTEXT_TOKENS,
    FREE_AT_MS,
    FULL_WORK_MS,
    ITERATION_MS,
    KV_USE,
    PENDING_TOKENS,
    REQUESTS,
    RUNNING_REQUESTS,
    WAITING_REQUESTS,
    WORK_MS,
    View,
)
from pointsman.router.prompt import READ_PATHS
from pointsman.router.ui.watch import UNPLACED, Follower, Seen

OTHER_PATH = "other"

SENT = "sent"
HELD = "held"


class Candidates(msgspec.Struct, frozen=True):
    """Those that the policy could have chosen, an entry each: all where they are few, else the one
    chosen, the shortest wait and the longest prefix; ``in_all``: how many there were.

    ``first_token_ms`` is wait and prefill, ``longer_wait_ms`` the wait beyond the shortest one.
    """

    in_all: int
    chosen: int  # an index
    place: list[Pair]
    wait_ms: list[float]
    longer_wait_ms: list[float]
    prefill_ms: list[float]
    saved_prefill_ms: list[float]
    first_token_ms: list[float]
    cached_tokens: list[float]
    requests: list[float]
    pending_tokens: list[float]
    context_tokens: list[float]
    waiting_requests: list[float]
    running_requests: list[float]
    kv_use_fraction: list[float]
    iteration_ms: list[float]


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

    ``place``: the replica, and of a pair its decode replica too. ``session``: its keyed hash.
    ``followed_by``: of one that was held, the sequence of the decision that took its place, or
    UNPLACED where that is one without a sequence.
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
    candidates: Candidates | None = None
    ttft_ms: float | None = None
    result: Result | None = None
    followed_by: Follower | None = None


def decision_of(seen: Seen, pairs: Sequence[Pair]) -> Decision:
    """The decision; ``pairs``: what the numbers of candidates stand for, where they are pairs."""
    what = seen.what
    if isinstance(what, Unplaced):
        return _unplaced(what)
    if isinstance(what, Chosen):
        return _sent(what, seen, pairs)
    return _logged(what, seen, pairs)


def _sent(chosen: Chosen, seen: Seen, pairs: Sequence[Pair]) -> Decision:
    question, situation = chosen.question, chosen.situation
    tokens, home = question.prompt_tokens, situation.home
    among = list(situation.candidates)
    return Decision(
        sequence=situation.sequence,
        kind=SENT,
        time_ms=situation.now_ms,
        place=_place(chosen.replica, pairs),
        reason=chosen.reason,
        path=_shown(question.path),
        prompt_tokens=None if tokens == UNKNOWN else tokens,
        output_tokens=question.output_tokens,
        session=question.session,
        attempt=question.attempt,
        waited_ms=chosen.wait.lasted_ms(situation.now_ms),
        home=None if home == NOWHERE else _place(home, pairs),
        wait_ms=chosen.expected_wait_ms,
        prefill_ms=chosen.work_ms,
        cached_tokens=chosen.hit_tokens,
        candidates=_candidates(
            (situation.view, [_place(number, pairs) for number in among]),
            (chosen.candidate, len(among)),
            situation.now_ms,
        ),
        ttft_ms=_ttft_ms(seen, situation.now_ms),
        result=_result(seen),
    )


def _logged(line: Ask, seen: Seen, pairs: Sequence[Pair]) -> Decision:
    places = [_place(number, pairs) for number in line.seen]
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
        candidates=_candidates(
            (line.logged_view, places),
            (line.seen.index(line.replica), len(line.candidates)),
            line.time_ms,
        ),
        ttft_ms=_ttft_ms(seen, line.time_ms),
        result=_result(seen),
        followed_by=seen.followed_by,
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


def _candidates(
    looked_at: tuple[View, list[Pair]], which: tuple[int, int], now_ms: float
) -> Candidates:
    """Of a view and the places of its columns; ``which``: the column chosen, and how many
    candidates there were."""
    (view, places), (chosen, in_all) = looked_at, which
    waits = np.maximum(view[FREE_AT_MS] - now_ms, 0.0)
    shortest_ms = waits.min()
    if len(places) > ALL_CANDIDATES:
        contenders = {chosen, int(waits.argmin()), int(view[CACHED_TOKENS].argmax())}
        columns = sorted(contenders)
        view, waits = view[:, columns], waits[columns]
        places, chosen = [places[c] for c in columns], columns.index(chosen)
    rows = view.tolist()
    return Candidates(
        in_all=in_all,
        chosen=chosen,
        place=places,
        wait_ms=waits.tolist(),
        longer_wait_ms=(waits - shortest_ms).tolist(),
        prefill_ms=rows[WORK_MS],
        saved_prefill_ms=(view[FULL_WORK_MS] - view[WORK_MS]).tolist(),
        first_token_ms=(waits + view[WORK_MS]).tolist(),
        cached_tokens=rows[CACHED_TOKENS],
        requests=rows[REQUESTS],
        pending_tokens=rows[PENDING_TOKENS],
        context_tokens=rows[CONTEXT_TOKENS],
        waiting_requests=rows[WAITING_REQUESTS],
        running_requests=rows[RUNNING_REQUESTS],
        kv_use_fraction=rows[KV_USE],
        iteration_ms=rows[ITERATION_MS],
    )


def _ttft_ms(seen: Seen, sent_ms: float) -> float | None:
    return None if seen.first_token_ms is None else seen.first_token_ms - sent_ms


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
