"""The events of a live router, and the view that follows from them, compiled.

    fill_views    the view of the candidates, as the simulator fills it (sim/router_view.py)
    sent -> first_token -> ended     one request; read_gauges     a reading of an engine

The state is a function of the events and their times alone, so that a replay of the log comes to
the same state, bit for bit. How many tokens a request has had is counted by the time that an
iteration takes, not by what came over the wire: what came is in no log.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import from_dtype, types

from pointsman.core.compiled import inner, inner_inlined, kernel
from pointsman.core.handles import HANDLE_TYPE, Handle, array_at, handle_of
from pointsman.dispatch.accounts import (
    count_ended,
    count_first_token,
    count_sent,
    count_tokens,
    learn_output,
    mean_work_ms,
    pending_wait_ms,
)
from pointsman.dispatch.live import AWAITED, LINK, PAIR, REPLICA, SLOT, Live
from pointsman.policies.in_flight import ACCOUNTS_TYPE, FLIGHTS_TYPE, NONE, InFlight
from pointsman.policies.policy import (
    CACHED_TOKENS,
    CANDIDATE,
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
)

# An answer's length before any has ended: a guess that the first ones replace.
FIRST_GUESS_TOKENS = 256.0

# Learning: the weight of a new sample, the shortest prefill and answer that say something, and
# how far a sample may be from what was expected before it is taken for an accident.
PREFILL_WEIGHT = 0.1
DECODE_WEIGHT = 0.05
LEAST_PREFILL_MS = 2.0
LEAST_TOKENS = 8
FARTHEST = 16.0

_ROW = types.Array(types.float64, 1, "C")
_ACCOUNTS, _FLIGHTS = array_at(ACCOUNTS_TYPE), array_at(FLIGHTS_TYPE)
_INTS, _FLOATS = array_at(types.Array(types.int32, 2, "C")), array_at(_ROW)
_COUNTERS = array_at(types.Array(types.int64, 1, "C"))
_REPLICAS = array_at(types.Array(from_dtype(REPLICA), 1, "C"))
_SLOTS = array_at(types.Array(from_dtype(SLOT), 1, "C"))
_AWAITED = array_at(types.Array(from_dtype(AWAITED), 1, "C"))
_PAIRS = array_at(types.Array(from_dtype(PAIR), 1, "C"))
_LINKS = array_at(types.Array(from_dtype(LINK), 1, "C"))


def handle_of_live(live: Live) -> Handle:
    """What the kernels below take; to be made anew whenever an array is another one."""
    return handle_of((*live.in_flight, *live[1:]))


LIVE_WORDS = 30  # of that handle


@inner_inlined
def live_at(handle: Any) -> Live:
    """The state behind a handle."""
    known = InFlight(
        _FLIGHTS(handle[0], (handle[1],)),
        _ACCOUNTS(handle[2], (handle[3],)),
        _INTS(handle[4], (handle[5], handle[6])),
        _INTS(handle[7], (handle[8], handle[9])),
        _FLOATS(handle[10], (handle[11],)),
        _FLOATS(handle[12], (handle[13],)),
        _COUNTERS(handle[14], (handle[15],)),
        _COUNTERS(handle[16], (handle[17],)),
    )
    return Live(
        known,
        _REPLICAS(handle[18], (handle[19],)),
        _SLOTS(handle[20], (handle[21],)),
        _FLOATS(handle[22], (handle[23],)),
        _AWAITED(handle[24], (handle[25],)),
        _PAIRS(handle[26], (handle[27],)),
        _LINKS(handle[28], (handle[29],)),
    )


IDS_TYPE = types.Array(types.int32, 1, "C")


@inner_inlined
def iteration_takes_ms(live: Live, r: int, steps: float) -> float:
    """Of all that decode there, ``steps`` tokens later."""
    costs, account = live.replicas[r], live.in_flight.accounts[r]
    tokens = account.decoding_tokens + steps * account.decoding
    nominal_ms = (
        costs.per_iteration_ms
        + costs.per_decode_ms * (account.decoding + costs.foreign_running)
        + costs.per_kv_token_ms * tokens
    )
    return nominal_ms * costs.decode_factor  # type: ignore[no-any-return]


@inner_inlined
def prefill_ms(live: Live, r: int, prompt: float, uncached: float) -> float:
    """What the prompt's uncached rest takes there, by itself."""
    costs = live.replicas[r]
    attention = uncached * (prompt - 0.5 * uncached)
    nominal_ms = costs.per_prefill_token_ms * uncached + costs.per_attention_ms * attention
    return nominal_ms * costs.prefill_factor  # type: ignore[no-any-return]


@inner_inlined
def steps_since_mark(live: Live, r: int, now_ms: float) -> int:
    """Tokens that each one decoding there has had since the mark."""
    iteration_ms = iteration_takes_ms(live, r, 0.0)
    if live.in_flight.accounts[r].decoding <= 0.0 or iteration_ms <= 0.0:
        return 0
    return int(min(1e9, max(0.0, now_ms - live.replicas[r].mark_ms) / iteration_ms))


@inner
def _bring_up_to_date(live: Live, r: int, now_ms: float) -> None:
    """Count the tokens of those that decode there, before who decodes there changes."""
    known = live.in_flight
    steps = steps_since_mark(live, r, now_ms)
    if steps > 0:
        for k in range(known.accounts[r].counts):
            count_tokens(known, r, known.running[r, k], steps)
    live.replicas[r].mark_ms = now_ms
    known.accounts[r].steps = 0


@inner
def _begin_decoding(live: Live, slot: int, first_ms: float) -> None:
    known, r = live.in_flight, live.slots[slot].replica
    _bring_up_to_date(live, r, first_ms)
    count_first_token(known, r, slot, live.slots[slot].prompt_tokens, first_ms)
    count_tokens(known, r, slot, 1)
    account = known.accounts[r]
    live.slots[slot].place = account.counts
    known.running[r, account.counts] = slot
    account.counts += 1


@inner
def assume_first_tokens(live: Live, r: int, now_ms: float) -> None:
    """Answers that come whole show no first token: it is taken to have come when expected."""
    while True:
        oldest = live.in_flight.accounts[r].oldest
        if oldest == NONE or live.slots[oldest].assumed_first_ms > now_ms:
            return
        first_ms = max(live.slots[oldest].assumed_first_ms, live.replicas[r].mark_ms)
        _begin_decoding(live, oldest, first_ms)


@inner_inlined
def mean_output(live: Live) -> float:
    """Tokens of an answer to come: the mean of those that ended."""
    finished = live.in_flight.finished
    return finished[2] / finished[0] if finished[0] > 0 else FIRST_GUESS_TOKENS


@inner_inlined
def seat_wait_ms(live: Live, r: int, further: float, decoding: float, iteration_ms: float) -> float:
    """Until a seat is free behind ``further`` requests more than were sent there."""
    costs, account = live.replicas[r], live.in_flight.accounts[r]
    if costs.max_num_seqs <= 0:
        return 0.0
    others = costs.foreign_waiting + costs.foreign_running
    lacking = account.requests + further + others + 1.0 - costs.max_num_seqs
    if lacking <= 0.0:
        return 0.0
    ending_ms = mean_output(live) * iteration_ms / max(1.0, decoding + costs.foreign_running)
    return float(lacking * ending_ms)


@inner_inlined
def _wait_ms(live: Live, r: int, work_ms: float, now_ms: float, held: float) -> float:
    """For the prefill of those before it, those of other routers too, or for a seat.

    ``held``: those held for the replica, or 0.
    """
    costs, account = live.replicas[r], live.in_flight.accounts[r]
    others_ms = costs.foreign_waiting * mean_work_ms(live.in_flight, work_ms)
    wait_ms = float(pending_wait_ms(live.in_flight, r, now_ms) + others_ms)
    if held > 0.0:
        wait_ms += live.awaited[r].work_ms
    iteration_ms = iteration_takes_ms(live, r, float(account.steps))
    return max(wait_ms, seat_wait_ms(live, r, held, account.decoding, iteration_ms))


@inner
def fill_gauges(live: Live, view: Any) -> None:
    """What the engines said, else what we know; a KV use that cannot be known is taken as the
    mean of the known ones, so that it decides nothing."""
    known_sum, known_count = 0.0, 0
    for c in range(view.shape[1]):
        r = int(live.in_flight.replica_of[c, 0])
        said, account = live.replicas[r], live.in_flight.accounts[r]
        pending = account.requests - account.decoding
        view[WAITING_REQUESTS, c] = pending if np.isnan(said.waiting) else said.waiting
        view[RUNNING_REQUESTS, c] = account.decoding if np.isnan(said.running) else said.running
        use = said.kv_use
        if np.isnan(use) and said.kv_tokens > 0:
            use = min(1.0, view[CONTEXT_TOKENS, c] / said.kv_tokens)
        view[KV_USE, c] = use
        if not np.isnan(use):
            known_sum += use
            known_count += 1
    for c in range(view.shape[1]):
        if np.isnan(view[KV_USE, c]):
            view[KV_USE, c] = known_sum / known_count if known_count > 0 else 0.0


@inner_inlined
def fill_column(live: Live, view: Any, c: int, prompt: float, now_ms: float) -> None:
    """All rows but the gauges of one candidate."""
    r = int(live.in_flight.replica_of[c, 0])
    account, said, waiting = live.in_flight.accounts[r], live.replicas[r], live.awaited[r]
    held = 0.0 if waiting.is_tried == 1 else waiting.requests
    hit = max(0.0, min(live.cached[r], prompt - 1.0))
    work_ms, full_ms = (
        prefill_ms(live, r, prompt, prompt - hit),
        prefill_ms(live, r, prompt, prompt),
    )
    view[FREE_AT_MS, c] = now_ms + _wait_ms(live, r, full_ms, now_ms, held)
    view[REQUESTS, c] = account.requests + held + said.foreign_waiting + said.foreign_running
    view[CACHED_TOKENS, c] = hit
    view[WORK_MS, c] = work_ms
    view[FULL_WORK_MS, c] = full_ms
    view[PENDING_TOKENS, c] = account.pending_tokens
    view[CONTEXT_TOKENS, c] = account.context_tokens + account.steps * account.decoding
    view[ITERATION_MS, c] = iteration_takes_ms(live, r, float(account.steps))
    view[CANDIDATE, c] = r
    if held > 0.0:
        view[PENDING_TOKENS, c] += waiting.uncached_tokens
        view[CONTEXT_TOKENS, c] += waiting.prompt_tokens


@inner_inlined
def show(views: tuple[Any, Any], shown_rows: int) -> None:
    """What the policy is shown of all that is known."""
    view, shown = views
    for row in range(view.shape[0]):
        is_shown = (shown_rows >> row) & 1
        for c in range(view.shape[1]):
            shown[row, c] = view[row, c] if is_shown else np.nan


@inner
def fill_views(
    live: Live, sizes: tuple[int, int], candidates: Any, now_ms: float, views: tuple[Any, Any]
) -> float:
    """What ``fill_view`` does, where each candidate is one replica."""
    prompt_tokens, shown_rows = sizes
    view, _ = views
    replica_of = live.in_flight.replica_of
    longest = 0.0
    for c in range(candidates.shape[0]):
        r = int(candidates[c])
        replica_of[c, 0], replica_of[c, 1], replica_of[c, 2] = r, NONE, r
        oldest = live.in_flight.accounts[r].oldest
        if oldest != NONE and live.slots[oldest].assumed_first_ms <= now_ms:
            assume_first_tokens(live, r, now_ms)
        live.in_flight.accounts[r].steps = steps_since_mark(live, r, now_ms)
        fill_column(live, view, c, float(prompt_tokens), now_ms)
        longest = max(longest, view[CACHED_TOKENS, c])
    fill_gauges(live, view)
    show(views, shown_rows)
    return longest


@kernel(types.float64(HANDLE_TYPE, types.UniTuple(types.int64, 4), types.float64, types.boolean))
def sent(
    handle: Any, request: tuple[int, int, int, int], now_ms: float, shows_first_token: bool
) -> float:
    """A request goes to a replica; what its prompt is expected to take there, in ms.

    ``request``: its slot, the replica, tokens of its prompt, and of those the uncached ones.
    """
    live = live_at(handle)
    slot, r, prompt, uncached = request
    assume_first_tokens(live, r, now_ms)
    work_ms = prefill_ms(live, r, float(prompt), float(uncached))
    record, flight = live.slots[slot], live.in_flight.flights[slot]
    record.replica, record.prompt_tokens, record.place = r, prompt, -1
    record.nominal_ms = work_ms / live.replicas[r].prefill_factor
    wait_ms = _wait_ms(live, r, work_ms, now_ms, 0.0)
    first_ms = now_ms + wait_ms + work_ms + iteration_takes_ms(live, r, 0.0)
    record.assumed_first_ms = np.inf if shows_first_token else first_ms
    flight.sent_ms, flight.first_token_ms, flight.work_ms = now_ms, np.nan, work_ms
    flight.uncached_tokens, flight.tokens_out = uncached, 0
    count_sent(live.in_flight, r, slot, prompt)
    return work_ms


@inner
def learn_factor(factor: float, sample: float, weight: float) -> float:
    """The factor moved towards the sample, in logarithms."""
    near = max(1.0 / FARTHEST, min(FARTHEST, sample))
    return np.exp((1.0 - weight) * np.log(factor) + weight * np.log(near))  # type: ignore[no-any-return]


@kernel(types.void(HANDLE_TYPE, types.int64, types.float64))
def first_token(handle: Any, slot: int, now_ms: float) -> None:
    """The request's first token came back.

    What its prefill took is the time since it was sent, or since the first token before it where
    that came later, less an iteration of those that decode: a sample for the prefill's factor.
    """
    live = live_at(handle)
    r = int(live.slots[slot].replica)
    assume_first_tokens(live, r, now_ms)
    if live.slots[slot].place >= 0:  # it was taken to have come
        return
    flight, account, costs = (
        live.in_flight.flights[slot],
        live.in_flight.accounts[r],
        live.replicas[r],
    )
    nominal_ms = flight.work_ms / costs.prefill_factor
    took_ms = now_ms - max(flight.sent_ms, account.last_first_ms) - iteration_takes_ms(live, r, 0.0)
    if account.oldest == slot and nominal_ms >= LEAST_PREFILL_MS:
        costs.prefill_factor = learn_factor(
            costs.prefill_factor, took_ms / nominal_ms, PREFILL_WEIGHT
        )
    _begin_decoding(live, slot, now_ms)


@inner
def _leave_running(live: Live, slot: int) -> None:
    """The last one of the row takes its place."""
    r, place = live.slots[slot].replica, live.slots[slot].place
    known = live.in_flight
    known.accounts[r].counts -= 1
    last = known.running[r, known.accounts[r].counts]
    known.running[r, place] = last
    live.slots[last].place = place
    live.slots[slot].place = -1


@kernel(types.void(HANDLE_TYPE, types.int64, types.int64, types.float64))
def ended(handle: Any, slot: int, output_tokens: int, now_ms: float) -> None:
    """The request ended, in whatever way; ``output_tokens`` of an answer that was counted, or -1.

    What its tokens took, one after the other, is a sample for the factor of an iteration.
    """
    live = live_at(handle)
    r = int(live.slots[slot].replica)
    known, costs = live.in_flight, live.replicas[r]
    flight = known.flights[slot]
    assume_first_tokens(live, r, now_ms)
    _bring_up_to_date(live, r, now_ms)
    nominal_ms = iteration_takes_ms(live, r, 0.0) / costs.decode_factor
    is_seen = live.slots[slot].place >= 0 and live.slots[slot].assumed_first_ms == np.inf
    if is_seen and output_tokens >= LEAST_TOKENS and nominal_ms > 0.0:
        took_ms = (now_ms - flight.first_token_ms) / (output_tokens - 1)
        costs.decode_factor = learn_factor(costs.decode_factor, took_ms / nominal_ms, DECODE_WEIGHT)
    if output_tokens >= 0:
        learn_output(known, output_tokens)
    count_ended(known, r, slot, live.slots[slot].prompt_tokens)
    if live.slots[slot].place >= 0:
        _leave_running(live, slot)


@kernel(types.void(HANDLE_TYPE, types.int64, types.UniTuple(types.float64, 3), types.float64))
def read_gauges(handle: Any, r: int, gauges: tuple[float, float, float], now_ms: float) -> None:
    """What an engine says: waiting and running requests, KV use; NaN where it does not.

    What is there beyond what was sent from here is taken to be another router's; beyond 1, for a
    request may be on its way while the engine counts.
    """
    live = live_at(handle)
    assume_first_tokens(live, r, now_ms)
    said, account = live.replicas[r], live.in_flight.accounts[r]
    said.waiting, said.running, said.kv_use = gauges
    pending = account.requests - account.decoding
    said.foreign_waiting = 0.0 if np.isnan(said.waiting) else max(0.0, said.waiting - pending - 1.0)
    foreign = said.waiting + said.running - account.requests - said.foreign_waiting - 1.0
    said.foreign_running = 0.0 if np.isnan(foreign) else max(0.0, foreign)
