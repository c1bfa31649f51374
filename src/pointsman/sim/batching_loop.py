"""The compiled event loop of a fleet that batches.

Events in the order of (time, kind, number): an iteration that ends comes before an arrival. One
arrival through it:

    accounts + holders -> view -> policy.choose -> replica -> its queue
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import typeof, types

from pointsman.core.compiled import Kernel, inlined
from pointsman.dispatch.draws import uniform_draw
from pointsman.dispatch.holders import fill_cached_tokens
from pointsman.policies.policy import (
    CACHED_TOKENS,
    CHOOSE_SIGNATURE,
    FREE_AT_MS,
    PARAMETERS_TYPE,
    RANDOM,
    REQUEST_TYPE,
    REQUESTS,
    SESSION,
    VIEW_TYPE,
)
from pointsman.sim.batching_engine import (
    blocks_for,
    cut_stretch,
    finish_stretch,
    join_queue,
    start_iteration,
    sync_stretch,
)
from pointsman.sim.batching_state import ENGINE, NONE, QUESTION, REJECTED, Fleet, idle_fleet
from pointsman.workload.workload import Floats, Ints


@inlined
def _next_end(fleet: Fleet) -> int:
    first = 0
    for r in range(1, fleet.replicas.shape[0]):
        if fleet.replicas[r].end_ms < fleet.replicas[first].end_ms:
            first = r
    return first


@inlined
def _expected_wait_ms(fleet: Fleet, r: int, now_ms: float) -> float:
    """Work sent there without a first token, less what it has had time to do of the oldest."""
    replica = fleet.replicas[r]
    oldest = replica.first_pending
    while oldest != NONE and not np.isnan(fleet.progress[oldest].first_token_ms):
        oldest = fleet.progress[oldest].following_pending
    replica.first_pending = oldest
    if oldest == NONE:
        replica.pending_ms = 0.0  # sums of doubles leave crumbs
        return 0.0
    since_ms = max(replica.last_first_ms, fleet.questions[oldest].arrival_ms)
    done_ms = min(now_ms - since_ms, fleet.progress[oldest].work_ms)
    return max(0.0, replica.pending_ms - done_ms)  # type: ignore[no-any-return]


@inlined
def _account(fleet: Fleet, r: int, i: int, work_ms: float) -> None:
    replica, request = fleet.replicas[r], fleet.progress[i]
    replica.in_flight += 1.0
    replica.pending_ms += work_ms
    request.work_ms = work_ms
    if replica.first_pending == NONE:
        replica.first_pending = i
    else:
        fleet.progress[replica.last_pending].following_pending = i
    replica.last_pending = i


@inlined
def _work_ms(fleet: Fleet, r: int, i: int, cached_tokens: float) -> float:
    """What the prompt's uncached rest takes there, by itself."""
    engine, prompt = fleet.engines[r], fleet.questions[i].prompt_tokens
    uncached = prompt - cached_tokens
    attention = uncached * (prompt - 0.5 * uncached)
    return engine.per_prefill_token_ms * uncached + engine.per_attention_ms * attention  # type: ignore[no-any-return]


@inlined
def _expect_holder(fleet: Fleet, r: int, i: int) -> None:
    """The router expects the prompt's blocks on the replica from now on."""
    start = fleet.questions[i].chain_start
    bit = np.uint64(1) << np.uint64(r & 63)
    for place in range(start, start + fleet.questions[i].prompt_blocks):
        fleet.holders[fleet.chain_blocks[place], r >> 6] |= bit


@cache
def _fleet_type() -> Any:
    one = np.ones(1, dtype=np.int32)
    engines = np.ones(1, dtype=ENGINE)
    return typeof(idle_fleet(np.ones(1, dtype=QUESTION), one, engines, one))


@cache
def batching_loop(reads: frozenset[str]) -> Kernel:  # noqa: PLR0915 - one event loop
    """The loop for policies that read these signals.

    It returns the row of the first request for which the policy chose no replica, or gave none of
    its reasons; else NONE.
    """
    reads_queue = "queue" in reads
    reads_requests = "requests" in reads
    reads_prefix = "prefix" in reads
    reads_session = SESSION in reads
    reads_random = RANDOM in reads

    def run(  # noqa: PLR0913, PLR0917, PLR0912, PLR0915
        choose: Any,
        parameters: Floats,
        fleet: Fleet,
        view: Floats,
        home: Ints,
        replica_of: Ints,
        reason_of: Any,
        request_row: Any,
        reasons: int,
        seed: int,
    ) -> int:
        request = request_row[0]
        count = view.shape[1]
        size = fleet.engines[0].block_size
        arrivals = fleet.questions.shape[0]
        i = 0
        while True:
            r = _next_end(fleet)
            end_ms = fleet.replicas[r].end_ms
            now_ms = fleet.questions[i].arrival_ms if i < arrivals else np.inf
            if end_ms <= now_ms:
                if end_ms == np.inf:
                    return NONE
                finish_stretch(fleet, r)
                start_iteration(fleet, r, end_ms)
                continue

            # What the policy sees.
            question = fleet.questions[i]
            prompt = question.prompt_tokens
            session = question.session
            request.now_ms = now_ms
            request.prompt_tokens = prompt
            request.sequence = i
            if reads_session:
                request.home = home[session] if session >= 0 else NONE
            if reads_random:
                request.random = uniform_draw(seed, i)
            if reads_prefix:
                for k in range(count):
                    sync_stretch(fleet, k, now_ms)
                first = question.chain_start
                last = first + min(question.prompt_blocks, (prompt - 1) // size)
                coverage = (size, (last - first) * size)
                row = view[CACHED_TOKENS]
                request.longest_hit_tokens = fill_cached_tokens(
                    fleet.holders, fleet.chain_blocks, first, last, coverage, row
                )
            for k in range(count):
                if reads_queue:
                    view[FREE_AT_MS, k] = now_ms + _expected_wait_ms(fleet, k, now_ms)
                if reads_requests:
                    view[REQUESTS, k] = fleet.replicas[k].in_flight

            k, reason = choose(request, view, parameters)
            if k < 0 or k >= count or reason < 0 or reason >= reasons:
                return i
            replica_of[i] = k
            reason_of[i] = reason
            if reads_session and session >= 0:
                home[session] = k

            # What happens there.
            replica = fleet.replicas[k]
            if blocks_for(prompt + question.output_tokens - 1, size) > replica.capacity:
                fleet.progress[i].status = REJECTED
                i += 1
                continue
            _account(
                fleet, k, i, _work_ms(fleet, k, i, view[CACHED_TOKENS, k] if reads_prefix else 0.0)
            )
            _expect_holder(fleet, k, i)
            nobody_waits = replica.first_waiting == NONE
            join_queue(fleet, k, i)
            if replica.length == 0:
                start_iteration(fleet, k, now_ms)
            elif nobody_waits and replica.running < fleet.engines[k].max_num_seqs:
                cut_stretch(fleet, k, now_ms)
            i += 1

    signature = types.int64(
        types.FunctionType(CHOOSE_SIGNATURE),
        PARAMETERS_TYPE,
        _fleet_type(),
        VIEW_TYPE,
        types.Array(types.int32, 1, "C"),
        types.Array(types.int32, 1, "C"),
        types.Array(types.int8, 1, "C"),
        types.Array(REQUEST_TYPE, 1, "C"),
        types.int64,
        types.int64,
    )
    return Kernel(run, signature)
