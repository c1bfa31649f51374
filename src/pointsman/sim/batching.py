"""A fleet of replicas that batch continuously, with finite KV caches (docs/simulator.md).

``simulate_fleet`` prepares records; ``batching_loop`` is what runs over them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pointsman.core.errors import InputError, wrong_value
from pointsman.costs.iteration import IterationCosts
from pointsman.policies.policy import REQUEST, SIGNALS, Policy
from pointsman.sim.batching_loop import batching_loop
from pointsman.sim.batching_state import (
    ENGINE,
    ENGINE_MODEL,
    FINISHED,
    NONE,
    QUESTION,
    REJECTED,
    Fleet,
    Records,
    idle_fleet,
)
from pointsman.sim.blocks import cache_chains
from pointsman.sim.choices import bad_choice, check_seed
from pointsman.workload.workload import Floats, Ints, Workload

MAX_REPLICAS = 1 << 12

STATUS_NAMES = {FINISHED: "finished", REJECTED: "rejected"}


@dataclass(frozen=True, slots=True)
class Engine:
    """One replica: vLLM's own flags, its cache, and what its iterations take.

    ``kv_blocks`` blocks of ``block_size`` tokens. ``reserve_full`` admits a request only where all
    its tokens fit (``scheduler_reserve_full_isl`` of vLLM 0.19). ``async_scheduling``: an arrival
    during an iteration is seen one iteration later.
    """

    costs: IterationCosts
    kv_blocks: int
    block_size: int = 16
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    reserve_full: bool = True
    async_scheduling: bool = False

    def __post_init__(self) -> None:
        for name in ("kv_blocks", "block_size", "max_num_seqs", "max_num_batched_tokens"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise wrong_value("engine", name, value, "an integer >= 1")
        for name in IterationCosts.__struct_fields__:
            value = getattr(self.costs, name)
            if not 0.0 <= value < np.inf:
                raise wrong_value("engine costs", name, value, "a finite number >= 0")
        if self.costs.per_iteration_ms <= 0.0:
            raise wrong_value(
                "engine costs", "per_iteration_ms", self.costs.per_iteration_ms, "a number > 0"
            )


@dataclass(frozen=True, slots=True)
class BatchingFleet:
    """Replicas, alike or not; the cache's block size is the same on all."""

    engines: tuple[Engine, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.engines) <= MAX_REPLICAS:
            raise wrong_value("fleet", "replicas", len(self.engines), f"1..{MAX_REPLICAS}")
        sizes = {engine.block_size for engine in self.engines}
        if len(sizes) > 1:
            raise wrong_value("fleet", "block_size", sorted(sizes), "one size on all replicas")

    @classmethod
    def of(cls, engine: Engine, replicas: int) -> BatchingFleet:
        """So many replicas of one kind."""
        return cls((engine,) * replicas)


@dataclass(frozen=True, eq=False)
class FleetRun:
    """What happened to each request on a fleet that batches; a row a request.

    Times are NaN for what did not happen. Every request is finished or rejected.
    """

    workload: Workload
    policy: Policy
    fleet: BatchingFleet
    replica: Ints
    reason: NDArray[np.int8]
    progress: Records
    replicas: Records
    engine_model: str = ENGINE_MODEL

    @property
    def finished(self) -> NDArray[np.bool_]:
        """Which requests got their whole answer."""
        return np.asarray(self.progress["status"] == FINISHED)

    @cached_property
    def first_token_ms(self) -> Floats:
        """When the first token came."""
        return np.ascontiguousarray(self.progress["first_token_ms"])

    @cached_property
    def finish_ms(self) -> Floats:
        """When the last token came."""
        return np.ascontiguousarray(self.progress["finish_ms"])

    @cached_property
    def queue_wait_ms(self) -> Floats:
        """From arrival until the engine first scheduled it."""
        return np.asarray(self.progress["scheduled_ms"] - self.workload.arrival_ms)

    @cached_property
    def cached_tokens(self) -> Ints:
        """Prompt tokens that were in the replica's cache when it was admitted."""
        return np.ascontiguousarray(self.progress["cached_tokens"])

    @property
    def preemptions(self) -> Ints:
        """How often each request was preempted."""
        return np.ascontiguousarray(self.progress["preemptions"])


def simulate_fleet(
    workload: Workload, policy: Policy, fleet: BatchingFleet, seed: int = 0
) -> FleetRun:
    """Route every request of the workload with the policy and let the engines batch them.

    A function of its arguments: same in, same bytes out. Raises InputError when a row has no token
    counts, when the trace's block size does not fit the cache's, or when the policy chooses no
    existing replica.
    """
    check_seed(seed)
    state = fleet_state(workload, fleet)
    n, count = len(workload), len(fleet.engines)
    replica, reason = np.full(n, NONE, dtype=np.int32), np.zeros(n, dtype=np.int8)
    wrong = batching_loop(policy.reads)(
        policy.choose,
        policy.parameter_values,
        state,
        _view(policy, count),
        np.full(max(1, workload.session_count), NONE, dtype=np.int32),
        replica,
        reason,
        np.zeros(1, dtype=REQUEST),
        len(policy.reasons),
        seed,
    )
    if wrong != NONE:
        raise bad_choice(workload, policy, count, wrong)
    return _run(workload, policy, fleet, state, (replica, reason))


def fleet_state(workload: Workload, fleet: BatchingFleet) -> Fleet:
    """The state of the fleet before the first request of the workload comes.

    Raises InputError as ``simulate_fleet`` does.
    """
    questions, blocks = _questions(workload, fleet.engines[0].block_size)
    capacities = np.array([engine.kv_blocks for engine in fleet.engines], dtype=np.int32)
    return idle_fleet(questions, blocks, _engines(fleet), capacities)


def _run(
    workload: Workload,
    policy: Policy,
    fleet: BatchingFleet,
    state: Fleet,
    choices: tuple[Ints, Any],
) -> FleetRun:
    return FleetRun(workload, policy, fleet, *choices, state.progress, state.replicas)


def _questions(workload: Workload, block_size: int) -> tuple[Records, Ints]:
    lacking = np.flatnonzero((workload.prompt_tokens < 1) | (workload.output_tokens < 1))
    if lacking.size:
        row = int(lacking[0])
        raise InputError(
            f"workload row {row}: prompt_tokens is {workload.prompt_tokens[row]}, output_tokens is"
            f" {workload.output_tokens[row]}; expected at least 1 of each to batch"
        )
    chains = cache_chains(workload, block_size)
    questions = np.zeros(len(workload), dtype=QUESTION)
    questions["arrival_ms"] = workload.arrival_ms
    questions["chain_start"] = chains.start
    questions["known_blocks"] = chains.known
    questions["prompt_blocks"] = chains.prompt
    questions["prompt_tokens"] = workload.prompt_tokens
    questions["output_tokens"] = workload.output_tokens
    questions["session"] = workload.session
    return questions, np.ascontiguousarray(chains.blocks)


def _engines(fleet: BatchingFleet) -> Records:
    engines = np.zeros(len(fleet.engines), dtype=ENGINE)
    for r, engine in enumerate(fleet.engines):
        for name in IterationCosts.__struct_fields__:
            engines[name][r] = getattr(engine.costs, name)
        for name in ("max_num_seqs", "max_num_batched_tokens", "block_size", "reserve_full"):
            engines[name][r] = getattr(engine, name)
        engines["see_late"][r] = engine.async_scheduling
    return engines


def _view(policy: Policy, count: int) -> Floats:
    view = np.full((len(SIGNALS), count), np.nan, dtype=np.float64)
    for row, signal in enumerate(SIGNALS):
        if signal in policy.reads:
            view[row] = 0.0
    return view
