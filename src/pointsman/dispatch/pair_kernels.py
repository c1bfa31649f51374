"""The view where prefill and decode are apart, and what hand-offs are learned to take, compiled.

A candidate is a pair, by the simulator's formulas (sim/router_view.py), or a replica by itself that
does both. ``fill_view`` is the view of either kind of fleet.
"""

from __future__ import annotations

from typing import Any

from numba import types

from pointsman.core.compiled import inner, inner_inlined, kernel
from pointsman.core.handles import HANDLE_TYPE
from pointsman.dispatch.accounts import pending_wait_ms
from pointsman.dispatch.live import Live
from pointsman.dispatch.live_kernels import (
    IDS_TYPE,
    assume_first_tokens,
    fill_column,
    fill_gauges,
    fill_views,
    iteration_takes_ms,
    learn_factor,
    live_at,
    mean_output,
    prefill_ms,
    show,
    steps_since_mark,
)
from pointsman.policies.in_flight import NONE
from pointsman.policies.policy import (
    CACHED_TOKENS,
    CANDIDATE,
    CONTEXT_TOKENS,
    FREE_AT_MS,
    FULL_WORK_MS,
    ITERATION_MS,
    PENDING_TOKENS,
    REQUESTS,
    WORK_MS,
)

# Hand-offs: the weight of one beside that of the next, the spread of the tokens moved, over their
# mean, below which the line goes through 0, and the weight of a new sample in a pair's factor.
DECAY = 0.95
LEAST_SPREAD = 0.1
FACTOR_WEIGHT = 0.1

_SIZES = types.UniTuple(types.int64, 2)
_VIEWS = types.UniTuple(types.Array(types.float64, 2, "C"), 2)


@inner_inlined
def _handoff_ms(live: Live, pair: int, tokens: float) -> float:
    link = live.link[0]
    line_ms = link.base_ms + link.per_token_ms * tokens
    return live.pairs[pair].factor * line_ms  # type: ignore[no-any-return]


@inner_inlined
def _moved_tokens(live: Live, decode: int, prompt: float) -> float:
    held = 0.0 if live.link[0].moves_all == 1 else min(live.cached[decode], prompt - 1.0)
    return max(0.0, prompt - max(0.0, held))


@inner
def _decode_wait_ms(live: Live, d: int, prompt: float, others: float) -> float:
    """For a seat and tokens there, as far as these are known, behind so many ``others``."""
    costs, account = live.replicas[d], live.in_flight.accounts[d]
    lacking = 0.0
    if costs.max_num_seqs > 0:
        lacking = others + 1.0 - costs.max_num_seqs
    context = account.context_tokens + account.steps * account.decoding
    answer = mean_output(live)
    over = context + prompt + answer - costs.kv_tokens
    if costs.kv_tokens > 0 and over > 0.0:
        lacking = max(lacking, over / max(1.0, context / max(1.0, account.requests)))
    if lacking <= 0.0:
        return 0.0
    iteration_ms = iteration_takes_ms(live, d, float(account.steps))
    return float(lacking * answer * iteration_ms / max(1.0, account.decoding))


@inner
def _fill_pair(live: Live, view: Any, c: int, prompt: float, now_ms: float) -> None:
    """All rows but the gauges of one pair."""
    chosen = live.in_flight.replica_of[c]
    p, d, number = int(chosen[0]), int(chosen[1]), int(chosen[2])
    at, there = live.in_flight.accounts[p], live.in_flight.accounts[d]
    said, told = live.replicas[p], live.replicas[d]
    hit = max(0.0, min(live.cached[p], prompt - 1.0))
    full_ms = prefill_ms(live, p, prompt, prompt)
    iteration_ms = iteration_takes_ms(live, d, float(there.steps))
    others = there.requests + told.foreign_waiting + told.foreign_running
    ahead_ms = (
        pending_wait_ms(live.in_flight, p, now_ms)
        + said.foreign_waiting * full_ms
        + _handoff_ms(live, number, _moved_tokens(live, d, prompt))
        + _decode_wait_ms(live, d, prompt, others)
        + iteration_ms
    )
    view[FREE_AT_MS, c] = now_ms + ahead_ms
    view[REQUESTS, c] = at.requests + said.foreign_waiting + said.foreign_running + others
    view[CACHED_TOKENS, c] = hit
    view[WORK_MS, c] = prefill_ms(live, p, prompt, prompt - hit)
    view[FULL_WORK_MS, c] = full_ms
    view[PENDING_TOKENS, c] = at.pending_tokens
    view[CONTEXT_TOKENS, c] = there.context_tokens + there.steps * there.decoding
    view[ITERATION_MS, c] = iteration_ms
    view[CANDIDATE, c] = number


@inner_inlined
def _bring_here(live: Live, r: int, now_ms: float) -> None:
    assume_first_tokens(live, r, now_ms)
    live.in_flight.accounts[r].steps = steps_since_mark(live, r, now_ms)


@inner
def _fill_pair_views(
    live: Live, sizes: tuple[int, int], candidates: Any, now_ms: float, views: tuple[Any, Any]
) -> float:
    prompt_tokens, shown_rows = sizes
    view, _ = views
    longest = 0.0
    for c in range(candidates.shape[0]):
        pair = live.pairs[candidates[c]]
        chosen = live.in_flight.replica_of[c]
        chosen[0], chosen[1], chosen[2] = pair.prefill, pair.decode, candidates[c]
        _bring_here(live, int(pair.prefill), now_ms)
        if pair.decode == NONE:
            fill_column(live, view, c, float(prompt_tokens), now_ms)
            view[CANDIDATE, c] = candidates[c]
        else:
            _bring_here(live, int(pair.decode), now_ms)
            _fill_pair(live, view, c, float(prompt_tokens), now_ms)
        longest = max(longest, view[CACHED_TOKENS, c])
    fill_gauges(live, view)
    show(views, shown_rows)
    return longest


@inner
def fill_all_views(
    live: Live, sizes: tuple[int, int], candidates: Any, now_ms: float, views: tuple[Any, Any]
) -> float:
    """What ``fill_view`` does."""
    if live.pairs.shape[0] > 0:
        return _fill_pair_views(live, sizes, candidates, now_ms, views)
    return fill_views(live, sizes, candidates, now_ms, views)


@kernel(types.float64(HANDLE_TYPE, _SIZES, IDS_TYPE, types.float64, _VIEWS))
def fill_view(
    handle: Any, sizes: tuple[int, int], candidates: Any, now_ms: float, views: tuple[Any, Any]
) -> float:
    """Write the view of the candidates; the longest hit of any of them.

    ``live.cached`` says who holds how much of the prompt. Held requests count where they wait to
    go; for one of them that is tried itself, those held for the same replica do not.

    ``sizes``: tokens of the prompt, as it is priced, and a bit for each row that the policy is
    shown. ``views``: all that is known, and what the policy is shown of it.
    """
    return fill_all_views(live_at(handle), sizes, candidates, now_ms, views)


@kernel(types.UniTuple(types.float64, 2)(HANDLE_TYPE, types.int64, types.float64))
def expected_handoff(handle: Any, pair: int, prompt: float) -> tuple[float, float]:
    """Tokens that are moved of such a prompt, with ``live.cached`` as it stands, and what that is
    expected to take."""
    live = live_at(handle)
    tokens = _moved_tokens(live, int(live.pairs[pair].decode), prompt)
    return tokens, _handoff_ms(live, pair, tokens)


@kernel(types.float64(HANDLE_TYPE, types.int64, types.float64))
def expected_decode(handle: Any, slot: int, now_ms: float) -> float:
    """How long after its hand-off the first token of a request in flight is expected: its wait on
    the decode replica, where it counts already, and an iteration."""
    live = live_at(handle)
    d = int(live.slots[slot].replica)
    account, costs = live.in_flight.accounts[d], live.replicas[d]
    account.steps = steps_since_mark(live, d, now_ms)
    others = account.requests - 1.0 + costs.foreign_waiting + costs.foreign_running
    wait_ms = _decode_wait_ms(live, d, 0.0, others)  # its prompt is counted there
    return wait_ms + iteration_takes_ms(live, d, float(account.steps))


@kernel(types.void(HANDLE_TYPE, types.int64, types.float64))
def assume_first_token_at(handle: Any, slot: int, first_ms: float) -> None:
    """When the first token of a request is taken to come that will not be seen."""
    live_at(handle).slots[slot].assumed_first_ms = first_ms


@kernel(types.void(HANDLE_TYPE, types.int64, types.float64, types.float64))
def learn_handoff(handle: Any, pair: int, tokens: float, took_ms: float) -> None:
    """A hand-off of so many tokens took so long."""
    live = live_at(handle)
    link = live.link[0]
    link.weight = DECAY * link.weight + 1.0
    link.tokens = DECAY * link.tokens + tokens
    link.ms = DECAY * link.ms + took_ms
    link.tokens_tokens = DECAY * link.tokens_tokens + tokens * tokens
    link.tokens_ms = DECAY * link.tokens_ms + tokens * took_ms
    mean_tokens, mean_ms = link.tokens / link.weight, link.ms / link.weight
    steepest = mean_ms / mean_tokens if mean_tokens > 0.0 else 0.0
    variance = link.tokens_tokens / link.weight - mean_tokens * mean_tokens
    rate = steepest
    if variance > (LEAST_SPREAD * mean_tokens) ** 2:
        rate = (link.tokens_ms / link.weight - mean_tokens * mean_ms) / variance
    link.per_token_ms = max(0.0, min(steepest, rate))
    link.base_ms = mean_ms - link.per_token_ms * mean_tokens
    line_ms = link.base_ms + link.per_token_ms * tokens
    if line_ms > 0.0:
        factor = learn_factor(live.pairs[pair].factor, took_ms / line_ms, FACTOR_WEIGHT)
        live.pairs[pair].factor = factor
