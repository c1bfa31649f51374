"""Replicas that serve one request at a time, first come first served: the lesson's timeline.

    start = max(arrival, free);  finish = start + service;  free = finish

A prefix counts as cached on a replica from the moment a request with it is routed there, and
caches are unbounded: that is how the lesson defines them, and it is optimistic.

``simulate`` prepares columns, ``_run`` is the compiled loop. One request through it:

    request + view  ->  policy.choose  ->  replica  ->  cached tokens  ->  service  ->  columns
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from pointsman.core.compiled import inlined, kernel
from pointsman.core.errors import InputError, wrong_value
from pointsman.costs.stages import StageCosts, stages_of
from pointsman.dispatch.holders import (
    Holders,
    covered_tokens,
    empty_holders,
    fill_cached_tokens,
    visit_chain,
)
from pointsman.policies.policy import (
    CACHED_TOKENS,
    CHOOSE_SIGNATURE,
    FREE_AT_MS,
    PARAMETERS_TYPE,
    READABLE,
    REQUEST,
    REQUEST_TYPE,
    REQUESTS,
    SESSION,
    SIGNALS,
    VIEW_TYPE,
    Policy,
)
from pointsman.workload.workload import Floats, Ints, Longs, Workload

DEFAULT_CACHE_HIT_SPEEDUP = 0.30  # the lesson on serving replica routing
MAX_REPLICAS = 1 << 16
NONE = -1


@dataclass(frozen=True, slots=True)
class FifoFleet:
    """Identical replicas and what a request costs on one.

    A row's own ``service_ms`` is shortened by ``cache_hit_speedup`` (0..1) on a hit; a row of
    tokens is priced by ``costs``: all stages of its uncached prompt and its output.
    """

    replicas: int
    cache_hit_speedup: float = DEFAULT_CACHE_HIT_SPEEDUP
    costs: StageCosts = field(default_factory=StageCosts)

    def __post_init__(self) -> None:
        if not 1 <= self.replicas <= MAX_REPLICAS:
            wanted = f"an integer in 1..{MAX_REPLICAS}"
            raise wrong_value("fleet", "replicas", self.replicas, wanted)
        if not 0.0 <= self.cache_hit_speedup <= 1.0:
            raise wrong_value(
                "fleet", "cache_hit_speedup", self.cache_hit_speedup, "a number in 0..1"
            )


@dataclass(frozen=True, eq=False)
class Routed:
    """What happened to each request of a workload under one policy, a row a request."""

    workload: Workload
    policy: Policy
    fleet: FifoFleet
    replica: Ints
    reason: NDArray[np.int8]  # an index into policy.reasons
    start_ms: Floats
    service_ms: Floats  # time on the replica, after what the cache saved
    cached_tokens: Ints

    @cached_property
    def finish_ms(self) -> Floats:
        """When the replica finished it."""
        return self.start_ms + self.service_ms

    @cached_property
    def queue_wait_ms(self) -> Floats:
        """From arrival to start."""
        return self.start_ms - self.workload.arrival_ms


class _Requests(NamedTuple):
    arrival_ms: Floats
    service_ms: Floats
    fixed_ms: Floats  # what a row of tokens costs besides its uncached prompt
    prompt_tokens: Ints
    session: Ints
    chain_start: Longs
    chain_blocks: Ints
    prefix_tokens: Ints


class _Rates(NamedTuple):
    hit_factor: float
    uncached_ms_per_token: float
    block_tokens: int
    seed: int


class _Reads(NamedTuple):
    queue: bool
    requests: bool
    prefix: bool
    session: bool
    random: bool


class _Replicas(NamedTuple):
    signals: Floats  # the view that policies read
    free_at_ms: Floats
    holders: Holders
    home: Ints
    oldest: Ints  # the first unfinished request of a replica, or NONE
    newest: Ints
    following: Ints  # the next request on the same replica, or NONE


class _Outcome(NamedTuple):
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

_RUN_SIGNATURE = types.int64(
    types.FunctionType(CHOOSE_SIGNATURE),
    PARAMETERS_TYPE,
    types.NamedTuple([_F8, _F8, _F8, _I4, _I4, _I8, _I4, _I4], _Requests),
    types.NamedTuple([types.float64, types.float64, types.int64, types.int64], _Rates),
    types.NamedUniTuple(types.boolean, 5, _Reads),
    types.NamedTuple([VIEW_TYPE, _F8, _BITS, _I4, _I4, _I4, _I4], _Replicas),
    types.NamedTuple([_I4, _I1, _F8, _F8, _I4], _Outcome),
    types.Array(REQUEST_TYPE, 1, "C"),
)


@inlined
def uniform_draw(seed: int, sequence: int) -> float:
    """The draw of one request, in [0, 1): SplitMix64 of (seed, sequence).

    Source: G. Steele, D. Lea, C. Flood, Fast Splittable Pseudorandom Number Generators, 2014.
    """
    step = np.uint64(0x9E3779B97F4A7C15)
    state = (np.uint64(seed) * np.uint64(0xD1342543DE82EF95)) + step * np.uint64(sequence + 1)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
    return float(state >> np.uint64(11)) * (1.0 / (1 << 53))


@inlined
def _retire_finished(replicas: _Replicas, outcome: _Outcome, now_ms: float) -> None:
    for k in range(replicas.oldest.shape[0]):
        i = replicas.oldest[k]
        while i != NONE and outcome.start_ms[i] + outcome.service_ms[i] <= now_ms:
            replicas.signals[REQUESTS, k] -= 1.0
            i = replicas.following[i]
            replicas.oldest[k] = i


@inlined
def _append_to_queue(replicas: _Replicas, k: int, i: int) -> None:
    replicas.signals[REQUESTS, k] += 1.0
    if replicas.oldest[k] == NONE:
        replicas.oldest[k] = i
    else:
        replicas.following[replicas.newest[k]] = i
    replicas.newest[k] = i


@kernel(_RUN_SIGNATURE)
def _run(  # noqa: PLR0913, PLR0917
    choose: Any,
    parameters: Floats,
    requests: _Requests,
    rates: _Rates,
    reads: _Reads,
    replicas: _Replicas,
    outcome: _Outcome,
    request_row: Any,
) -> int:
    """Route and serve every request; the row of the first invalid choice, or -1."""
    request = request_row[0]
    blocks = requests.chain_blocks
    count = replicas.free_at_ms.shape[0]
    for i in range(requests.arrival_ms.shape[0]):
        now_ms = requests.arrival_ms[i]
        session = requests.session[i]
        tracked = reads.session and session >= 0
        first = requests.chain_start[i]
        last = requests.chain_start[i + 1]
        coverage = (rates.block_tokens, requests.prefix_tokens[i])

        # What the policy sees.
        request.now_ms = now_ms
        request.prompt_tokens = requests.prompt_tokens[i]
        request.sequence = i
        request.home = replicas.home[session] if tracked else NONE
        if reads.random:
            request.random = uniform_draw(rates.seed, i)
        if reads.requests:
            _retire_finished(replicas, outcome, now_ms)
        if reads.prefix:
            row = replicas.signals[CACHED_TOKENS]
            fill_cached_tokens(replicas.holders, blocks, first, last, coverage, row)

        k, reason = choose(request, replicas.signals, parameters)
        if k < 0 or k >= count:
            return i

        # What happens there.
        held = visit_chain(replicas.holders, blocks, first, last, k)
        cached = covered_tokens(held, last - first, coverage)
        service_ms = requests.service_ms[i]
        if np.isnan(service_ms):
            uncached = requests.prompt_tokens[i] - cached
            service_ms = requests.fixed_ms[i] + uncached * rates.uncached_ms_per_token
        else:
            service_ms *= rates.hit_factor if cached > 0 else 1.0
        start_ms = max(now_ms, replicas.free_at_ms[k])
        finish_ms = start_ms + service_ms

        outcome.replica[i] = k
        outcome.reason[i] = reason
        outcome.start_ms[i] = start_ms
        outcome.service_ms[i] = service_ms
        outcome.cached_tokens[i] = cached
        replicas.free_at_ms[k] = finish_ms
        if reads.queue:
            replicas.signals[FREE_AT_MS, k] = finish_ms
        if reads.requests:
            _append_to_queue(replicas, k, i)
        if tracked:
            replicas.home[session] = k
    return NONE


def simulate(workload: Workload, policy: Policy, fleet: FifoFleet, seed: int = 0) -> Routed:
    """Route every request of the workload with the policy and serve it.

    A function of its arguments: same in, same bytes out. ``seed`` (>= 0) feeds only the draws of
    policies that use randomness. Raises InputError when the policy chooses no existing replica.
    """
    if seed < 0:
        raise wrong_value("simulation", "seed", seed, "an integer >= 0")
    n = len(workload)
    outcome = _Outcome(
        replica=np.empty(n, dtype=np.int32),
        reason=np.empty(n, dtype=np.int8),
        start_ms=np.empty(n, dtype=np.float64),
        service_ms=np.empty(n, dtype=np.float64),
        cached_tokens=np.empty(n, dtype=np.int32),
    )
    wrong = _run(
        policy.choose,
        policy.parameter_values,
        _requests_of(workload, fleet.costs),
        _rates_of(workload, fleet, seed),
        _Reads(*(signal in policy.reads for signal in READABLE)),
        _idle_replicas(workload, policy, fleet.replicas),
        outcome,
        np.zeros(1, dtype=REQUEST),
    )
    if wrong != NONE:
        raise InputError(
            f"policy {policy.name} chose no replica for request {workload.names.request(wrong)}"
            f" (row {wrong}); expected a candidate in 0..{fleet.replicas - 1}"
        )
    return Routed(workload, policy, fleet, *outcome)


def _requests_of(workload: Workload, costs: StageCosts) -> _Requests:
    if np.isnan(workload.service_ms).any():
        fixed_ms = stages_of(0, workload.output_tokens, costs).total_ms
    else:
        fixed_ms = np.empty(0, dtype=np.float64)
    return _Requests(
        workload.arrival_ms,
        workload.service_ms,
        np.ascontiguousarray(fixed_ms, dtype=np.float64),
        workload.prompt_tokens,
        workload.session,
        workload.chain_start,
        workload.chain_blocks,
        workload.prefix_tokens,
    )


def _rates_of(workload: Workload, fleet: FifoFleet, seed: int) -> _Rates:
    fixed = stages_of(0, 0, fleet.costs).total_ms
    return _Rates(
        hit_factor=1.0 - fleet.cache_hit_speedup,
        uncached_ms_per_token=float(stages_of(1, 0, fleet.costs).total_ms - fixed),
        block_tokens=workload.block_size_tokens,
        seed=seed,
    )


def _idle_replicas(workload: Workload, policy: Policy, count: int) -> _Replicas:
    view = np.full((len(SIGNALS), count), np.nan, dtype=np.float64)
    for row, signal in enumerate(SIGNALS):
        if signal in policy.reads:
            view[row] = 0.0
    sessions = workload.session_count if SESSION in policy.reads else 0
    counted = "requests" in policy.reads
    return _Replicas(
        signals=view,
        free_at_ms=np.zeros(count, dtype=np.float64),
        holders=empty_holders(workload.block_count, count),
        home=np.full(sessions, NONE, dtype=np.int32),
        oldest=np.full(count if counted else 0, NONE, dtype=np.int32),
        newest=np.full(count if counted else 0, NONE, dtype=np.int32),
        following=np.full(len(workload) if counted else 0, NONE, dtype=np.int32),
    )
