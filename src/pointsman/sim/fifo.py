"""Replicas that serve one request at a time, first come first served: the lesson's timeline.

    start = max(arrival, free);  finish = start + service;  free = finish

A prefix counts as cached on a replica from the moment a request with it is routed there, and
caches are unbounded: that is how the lesson defines them, and it is optimistic.

``simulate`` prepares columns; ``fifo_loop`` is what runs over them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pointsman.core.checks import check_seed
from pointsman.core.errors import InputError, wrong_value
from pointsman.costs.stages import StageCosts, stages_of
from pointsman.dispatch.holders import empty_holders, words_for
from pointsman.metrics.service import Served
from pointsman.policies.policy import REQUEST, SESSION, Policy, view_for
from pointsman.sim.choices import bad_choice, refuse_batching_signals
from pointsman.sim.fifo_loop import NONE, Outcome, Rates, Replicas, Requests, fifo_loop
from pointsman.workload.workload import Floats, Ints, Workload

DEFAULT_CACHE_HIT_SPEEDUP = 0.30  # the lesson on serving replica routing
MAX_REPLICAS = 1 << 16


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

    @cached_property
    def served(self) -> Served:
        """The columns that ``pointsman.metrics`` computes figures from."""
        prompt, output = self.workload.prompt_tokens, self.workload.output_tokens
        known = bool(np.all(prompt >= 0)) and len(self.workload) > 0
        tokens_known = known and bool(np.all(output >= 0))
        return Served(
            replica=self.replica,
            arrival_ms=self.workload.arrival_ms,
            queue_wait_ms=self.queue_wait_ms,
            finish_ms=self.finish_ms,
            busy_ms=self.service_ms,
            hit=self.cached_tokens > 0,
            tokens=prompt.astype(np.int64) + output if tokens_known else None,
            prompt_tokens=prompt if known else None,
            cached_tokens=self.cached_tokens if known else None,
        )


def simulate(workload: Workload, policy: Policy, fleet: FifoFleet, seed: int = 0) -> Routed:
    """Route every request of the workload with the policy and serve it.

    A function of its arguments: same in, same bytes out. ``seed`` (>= 0) feeds only the draws of
    policies that use randomness. Raises InputError when the policy chooses no existing replica.
    """
    check_seed("simulation", seed)
    refuse_batching_signals(policy)
    n = len(workload)
    outcome = Outcome(
        replica=np.empty(n, dtype=np.int32),
        reason=np.empty(n, dtype=np.int8),
        start_ms=np.empty(n, dtype=np.float64),
        service_ms=np.empty(n, dtype=np.float64),
        cached_tokens=np.empty(n, dtype=np.int32),
    )
    replicas = _idle_replicas(workload, policy, fleet.replicas)
    loop = fifo_loop(policy.reads, words_for(fleet.replicas) == 1)
    wrong = loop(
        policy.choose,
        policy.parameter_values,
        _requests_of(workload, fleet.costs),
        _rates_of(workload, fleet, seed),
        replicas,
        outcome,
        np.zeros(1, dtype=REQUEST),
        len(policy.reasons),
    )
    if wrong != NONE:
        raise bad_choice(workload, policy, fleet.replicas, wrong)
    if not np.isfinite(replicas.free_at_ms).all():
        raise InputError(
            "simulation: times grow beyond any number; expected smaller costs or service times"
        )
    return Routed(workload, policy, fleet, *outcome)


def _requests_of(workload: Workload, costs: StageCosts) -> Requests:
    if np.isnan(workload.service_ms).any():
        fixed_ms = stages_of(0, workload.output_tokens, costs).total_ms
    else:
        fixed_ms = np.empty(0, dtype=np.float64)
    return Requests(
        workload.arrival_ms,
        workload.service_ms,
        np.ascontiguousarray(fixed_ms, dtype=np.float64),
        workload.prompt_tokens,
        workload.session,
        workload.chain_start,
        workload.chain_blocks,
        workload.prefix_tokens,
    )


def _rates_of(workload: Workload, fleet: FifoFleet, seed: int) -> Rates:
    fixed = stages_of(0, 0, fleet.costs).total_ms
    return Rates(
        hit_factor=1.0 - fleet.cache_hit_speedup,
        uncached_ms_per_token=float(stages_of(1, 0, fleet.costs).total_ms - fixed),
        block_tokens=workload.block_size_tokens,
        seed=seed,
    )


def _idle_replicas(workload: Workload, policy: Policy, count: int) -> Replicas:
    sessions = workload.session_count if SESSION in policy.reads else 0
    counted = "requests" in policy.reads
    return Replicas(
        signals=view_for(policy.reads, count),
        free_at_ms=np.zeros(count, dtype=np.float64),
        holders=empty_holders(workload.block_count, count),
        home=np.full(sessions, NONE, dtype=np.int32),
        oldest=np.full(count if counted else 0, NONE, dtype=np.int32),
        newest=np.full(count if counted else 0, NONE, dtype=np.int32),
        following=np.full(len(workload) if counted else 0, NONE, dtype=np.int32),
    )
