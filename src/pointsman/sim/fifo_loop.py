"""The compiled event loop of single-server replicas.

One request through it:

    request + view  ->  policy.choose  ->  replica  ->  cached tokens  ->  service  ->  columns

It returns the row of the first request for which the policy chose no replica, or gave none of its
reasons; else ``NONE``.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from pointsman.core.compiled import Kernel, helper, inlined
from pointsman.dispatch.draws import uniform_draw
from pointsman.dispatch.holders import Holders, covered_tokens, fill_cached_tokens, visit_chain
from pointsman.policies.policy import (
    CACHED_TOKENS,
    CHOOSE_SIGNATURE,
    FREE_AT_MS,
    FULL_WORK_MS,
    PARAMETERS_TYPE,
    RANDOM,
    REQUEST_TYPE,
    REQUESTS,
    SESSION,
    VIEW_TYPE,
    WORK_MS,
)
from pointsman.workload.workload import Floats, Ints, Longs

NONE = -1


class Requests(NamedTuple):
    """The columns of a workload, and what a row of tokens costs."""

    arrival_ms: Floats
    service_ms: Floats
    fixed_ms: Floats  # what a row of tokens costs besides its uncached prompt
    prompt_tokens: Ints
    session: Ints
    chain_start: Longs
    chain_blocks: Ints
    prefix_tokens: Ints


class Rates(NamedTuple):
    """What the fleet makes of them."""

    hit_factor: float
    uncached_ms_per_token: float
    block_tokens: int
    seed: int


class Replicas(NamedTuple):
    """The state of the fleet while the loop runs."""

    signals: Floats  # the view that policies read
    free_at_ms: Floats
    holders: Holders
    home: Ints
    oldest: Ints  # the first unfinished request of a replica, or NONE
    newest: Ints
    following: Ints  # the next request on the same replica, or NONE


class Outcome(NamedTuple):
    """The columns that the loop fills."""

    replica: Ints
    reason: NDArray[np.int8]
    start_ms: Floats
    service_ms: Floats
    cached_tokens: Ints


_F8 = types.Array(types.float64, 1, "C")
_I4 = types.Array(types.int32, 1, "C")
_I8 = types.Array(types.int64, 1, "C")
_I1 = types.Array(types.int8, 1, "C")
_BITS = types.Array(types.uint64, 2, "C")

_SIGNATURE = types.int64(
    types.FunctionType(CHOOSE_SIGNATURE),
    PARAMETERS_TYPE,
    types.NamedTuple([_F8, _F8, _F8, _I4, _I4, _I8, _I4, _I4], Requests),
    types.NamedTuple([types.float64, types.float64, types.int64, types.int64], Rates),
    types.NamedTuple([VIEW_TYPE, _F8, _BITS, _I4, _I4, _I4, _I4], Replicas),
    types.NamedTuple([_I4, _I1, _F8, _F8, _I4], Outcome),
    types.Array(REQUEST_TYPE, 1, "C"),
    types.int64,
)


@helper
def _retire_finished(replicas: Replicas, outcome: Outcome, now_ms: float) -> None:
    for k in range(replicas.oldest.shape[0]):
        i = replicas.oldest[k]
        while i != NONE and outcome.start_ms[i] + outcome.service_ms[i] <= now_ms:
            replicas.signals[REQUESTS, k] -= 1.0
            i = replicas.following[i]
            replicas.oldest[k] = i


@inlined
def _append_to_queue(replicas: Replicas, k: int, i: int) -> None:
    replicas.signals[REQUESTS, k] += 1.0
    if replicas.oldest[k] == NONE:
        replicas.oldest[k] = i
    else:
        replicas.following[replicas.newest[k]] = i
    replicas.newest[k] = i


@helper
def _price_prompt(view: Floats, requests: Requests, rates: Rates, i: int) -> None:
    """Write what the prompt takes on each replica, with and without what is cached there."""
    own_ms = requests.service_ms[i]
    for k in range(view.shape[1]):
        if np.isnan(own_ms):
            per_token_ms = rates.uncached_ms_per_token
            view[FULL_WORK_MS, k] = requests.prompt_tokens[i] * per_token_ms
            view[WORK_MS, k] = view[FULL_WORK_MS, k] - view[CACHED_TOKENS, k] * per_token_ms
        else:
            view[FULL_WORK_MS, k] = own_ms
            view[WORK_MS, k] = own_ms * (rates.hit_factor if view[CACHED_TOKENS, k] > 0.0 else 1.0)


@cache
def fifo_loop(reads: frozenset[str], one_word: bool) -> Kernel:  # noqa: PLR0915 - one event loop
    """The loop for policies that read these signals; what nobody reads is compiled away.

    ``one_word``: the fleet has at most 64 replicas.
    """
    reads_queue = "queue" in reads
    reads_requests = "requests" in reads
    reads_prefix = "prefix" in reads
    reads_work = "work" in reads and reads_prefix
    reads_session = SESSION in reads
    reads_random = RANDOM in reads

    def run(  # noqa: PLR0913, PLR0917 - all that a run has
        choose: Any,
        parameters: Floats,
        requests: Requests,
        rates: Rates,
        replicas: Replicas,
        outcome: Outcome,
        request_row: Any,
        reasons: int,
    ) -> int:
        request = request_row[0]
        blocks = requests.chain_blocks
        count = replicas.free_at_ms.shape[0]
        for i in range(requests.arrival_ms.shape[0]):
            now_ms = requests.arrival_ms[i]
            session = requests.session[i]
            first = requests.chain_start[i]
            last = requests.chain_start[i + 1]
            coverage = (rates.block_tokens, requests.prefix_tokens[i])

            # What the policy sees.
            request.now_ms = now_ms
            request.prompt_tokens = requests.prompt_tokens[i]
            request.sequence = i
            if reads_session:
                request.home = replicas.home[session] if session >= 0 else NONE
            if reads_random:
                request.random = uniform_draw(rates.seed, i)
            if reads_requests:
                _retire_finished(replicas, outcome, now_ms)
            if reads_prefix:
                row = replicas.signals[CACHED_TOKENS]
                longest = fill_cached_tokens(replicas.holders, blocks, first, last, coverage, row)
                request.longest_hit_tokens = longest

            if reads_work:
                _price_prompt(replicas.signals, requests, rates, i)

            k, reason = choose(request, replicas.signals, parameters)
            if k < 0 or k >= count or reason < 0 or reason >= reasons:
                return i

            # What happens there.
            held = visit_chain(replicas.holders, blocks, first, last, k, one_word)
            cached = covered_tokens(held, last - first, coverage)
            service_ms = requests.service_ms[i]
            if np.isnan(service_ms):
                uncached = requests.prompt_tokens[i] - cached
                service_ms = requests.fixed_ms[i] + uncached * rates.uncached_ms_per_token
            else:
                hit_ms = service_ms * rates.hit_factor
                service_ms = hit_ms if held > 0 else service_ms
            start_ms = max(now_ms, replicas.free_at_ms[k])

            outcome.replica[i] = k
            outcome.reason[i] = reason
            outcome.start_ms[i] = start_ms
            outcome.service_ms[i] = service_ms
            outcome.cached_tokens[i] = cached
            replicas.free_at_ms[k] = start_ms + service_ms
            if reads_queue:
                replicas.signals[FREE_AT_MS, k] = start_ms + service_ms
            if reads_requests:
                _append_to_queue(replicas, k, i)
            if reads_session and session >= 0:
                replicas.home[session] = k
        return NONE

    return Kernel(run, _SIGNATURE)
