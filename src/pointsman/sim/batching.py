"""A fleet of replicas that batch continuously, with finite KV caches (docs/simulator.md).

``simulate_fleet`` prepares records; ``batching_loop`` is what runs over them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pointsman.core.checks import check_integer, check_number
from pointsman.core.errors import InputError, wrong_value
from pointsman.costs.iteration import IterationCosts
from pointsman.policies.policy import IN_FLIGHT, REQUEST, ROWS, Policy
from pointsman.sim.batching_loop import CHANGED, DONE, batching_loop
from pointsman.sim.batching_state import (
    ENGINE,
    ENGINE_MODEL,
    FAILED,
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
from pointsman.sim.conditions import EVENTS, NOTHING_SPECIAL, ORDERS, Conditions
from pointsman.sim.knowledge import Signals
from pointsman.sim.membership import JOINS, membership_change
from pointsman.sim.traffic import CHANGE, HELD, Traffic, idle_traffic
from pointsman.workload.workload import Floats, Ints, Workload

MAX_REPLICAS = 1 << 12

STATUS_NAMES = {FINISHED: "finished", REJECTED: "rejected", FAILED: "failed"}

MAX_MODEL_LEN = 2**31 - 1


ENGINE_LIMITS = (
    "kv_blocks",
    "block_size",
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
)


@dataclass(frozen=True, slots=True)
class Engine:
    """One replica: vLLM's own flags, its cache, and what its iterations take.

    ``kv_blocks`` blocks of ``block_size`` tokens. ``reserve_full`` admits a request only where all
    its tokens fit (``scheduler_reserve_full_isl`` of vLLM 0.19). ``async_scheduling``: an arrival
    during an iteration is seen one iteration later. ``max_model_len``: tokens of prompt and output
    together. ``by_priority``: the lowest ``priority`` goes first, and is preempted last.
    """

    costs: IterationCosts
    kv_blocks: int
    block_size: int = 16
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    reserve_full: bool = True
    async_scheduling: bool = False
    max_model_len: int = MAX_MODEL_LEN
    by_priority: bool = False

    def __post_init__(self) -> None:
        for name in ENGINE_LIMITS:
            check_integer("engine", name, getattr(self, name), 1)
        for name in IterationCosts.__struct_fields__:
            check_number("engine costs", name, getattr(self.costs, name))
        check_number("engine costs", "per_iteration_ms", self.costs.per_iteration_ms, above=0.0)


@dataclass(frozen=True, slots=True)
class Split:
    """Prefill and decode apart: the first ``prefill`` replicas do the one, the others the other.

    A hand-off takes ``base_ms`` and the prompt's KV, ``kv_bytes_per_token``, over one link of
    ``bytes_per_ms``; transfers at the same time share it unless ``contention`` is off. Blocks that
    the decode replica holds are not moved unless ``moves_all``.
    """

    prefill: int
    kv_bytes_per_token: float
    bytes_per_ms: float
    base_ms: float = 0.0
    contention: bool = True
    moves_all: bool = False

    def __post_init__(self) -> None:
        check_integer("split", "prefill", self.prefill, 1)
        for name in ("kv_bytes_per_token", "base_ms"):
            check_number("split", name, getattr(self, name))
        check_number("split", "bytes_per_ms", self.bytes_per_ms, above=0.0)


@dataclass(frozen=True, slots=True)
class BatchingFleet:
    """Replicas, alike or not; the cache's block size is the same on all."""

    engines: tuple[Engine, ...]
    split: Split | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.engines) <= MAX_REPLICAS:
            raise wrong_value("fleet", "replicas", len(self.engines), f"1..{MAX_REPLICAS}")
        sizes = {engine.block_size for engine in self.engines}
        if len(sizes) > 1:
            raise wrong_value("fleet", "block_size", sorted(sizes), "one size on all replicas")
        if self.split is not None and self.split.prefill >= len(self.engines):
            wanted = f"at most {len(self.engines) - 1}, so that a replica is left to decode"
            raise wrong_value("fleet", "prefill replicas", self.split.prefill, wanted)

    @classmethod
    def of(cls, engine: Engine, replicas: int) -> BatchingFleet:
        """So many replicas of one kind."""
        return cls((engine,) * replicas)

    @property
    def candidates(self) -> Ints:
        """What a policy chooses from, a row each: a replica and -1, or a prefill and a decode, and
        its number.

        Pairs stand so that one after the other takes turns in both pools.
        """
        count = len(self.engines)
        if self.split is None:
            number = np.arange(count)
            return np.column_stack((number, np.full(count, NONE), number)).astype(np.int32)
        prefills, decodes = self.split.prefill, count - self.split.prefill
        turn, prefill = np.divmod(np.arange(prefills * decodes), prefills)
        decode = prefills + (turn + prefill) % decodes
        number = np.arange(prefills * decodes)
        return np.column_stack((prefill, decode, number)).astype(np.int32)


@dataclass(frozen=True, eq=False)
class FleetRun:
    """What happened to each request on a fleet that batches; a row a request.

    Times are NaN for what did not happen. Every request is finished or rejected.
    """

    workload: Workload
    policy: Policy
    fleet: BatchingFleet
    conditions: Conditions
    seed: int
    reason: NDArray[np.int8]
    waits: Floats
    state: Fleet
    engine_model: str = ENGINE_MODEL

    @property
    def progress(self) -> Records:
        """The rows that brought answers: of a split fleet those of the decode."""
        return self.state.progress[-len(self.workload) :]

    @property
    def prefills(self) -> Records:
        """The rows that computed prompts; of a fleet that is not split the same."""
        return self.state.progress[: len(self.workload)]

    @property
    def replicas(self) -> Records:
        """What each replica did."""
        return self.state.replicas

    @cached_property
    def arrival_ms(self) -> Floats:
        """When each request came: of a closed loop not the workload's own time."""
        return np.ascontiguousarray(self.state.questions["arrival_ms"][: len(self.workload)])

    @property
    def replica(self) -> Ints:
        """Where each prompt was computed; -1 for nowhere."""
        return np.ascontiguousarray(self.prefills["replica"])

    @property
    def decode_replica(self) -> Ints:
        """Where each answer was generated; -1 for nowhere."""
        return np.ascontiguousarray(self.progress["replica"])

    @property
    def status(self) -> Ints:
        """How each request ended: FINISHED, REJECTED or FAILED."""
        ended = self.prefills["status"]
        given_up = (ended == REJECTED) | (ended == FAILED)
        return np.where(given_up, ended, self.progress["status"]).astype(np.int32)

    @property
    def finished(self) -> NDArray[np.bool_]:
        """Which requests got their whole answer."""
        return np.asarray(self.status == FINISHED)

    @cached_property
    def first_token_ms(self) -> Floats:
        """When the first token came."""
        return np.ascontiguousarray(self.state.flights["first_token_ms"][-len(self.workload) :])

    @cached_property
    def finish_ms(self) -> Floats:
        """When the last token came."""
        return np.ascontiguousarray(self.progress["finish_ms"])

    @cached_property
    def queue_wait_ms(self) -> Floats:
        """From arrival until the engine first scheduled it."""
        return np.asarray(self.prefills["scheduled_ms"] - self.arrival_ms)

    @property
    def expected_wait_ms(self) -> Floats:
        """What the router expected at the candidate chosen; NaN where the policy reads no queue."""
        return np.ascontiguousarray(self.waits[:, 0])

    @property
    def shortest_wait_ms(self) -> Floats:
        """What it expected at the candidate with the shortest wait."""
        return np.ascontiguousarray(self.waits[:, 1])

    @property
    def saved_ms(self) -> Floats:
        """How much less the prompt was expected to take there than at that one."""
        return np.ascontiguousarray(self.waits[:, 2])

    @property
    def boundary_wait_ms(self) -> Floats:
        """Until the iteration ended that was under way where a request was sent."""
        return np.ascontiguousarray(self.waits[:, 3])

    @cached_property
    def cached_tokens(self) -> Ints:
        """Prompt tokens that were in the replica's cache when it was admitted."""
        return np.ascontiguousarray(self.prefills["cached_tokens"])

    @property
    def handoff_ms(self) -> Floats:
        """Base time and transfer of each hand-off; NaN where there was none."""
        received = ~np.isnan(self.progress["received_ms"])
        return np.where(received, self.progress["handoff_ms"], np.nan)

    @property
    def handoff_bytes(self) -> Floats:
        """What each hand-off moved."""
        bytes_per_token = 0.0 if self.fleet.split is None else self.fleet.split.kv_bytes_per_token
        return np.asarray(self.progress["moved_tokens"] * bytes_per_token)

    @property
    def decode_wait_ms(self) -> Floats:
        """From a request's coming to its decode replica until that had a seat and blocks for it."""
        base_ms = 0.0 if self.fleet.split is None else self.fleet.split.base_ms
        came_ms = self.prefills["finish_ms"] + base_ms
        return np.asarray(self.progress["scheduled_ms"] - came_ms)

    @property
    def preemptions(self) -> Ints:
        """How often each request was preempted."""
        if self.fleet.split is None:
            return np.ascontiguousarray(self.progress["preemptions"])
        return np.asarray(self.prefills["preemptions"] + self.progress["preemptions"])


def simulate_fleet(
    workload: Workload,
    policy: Policy,
    fleet: BatchingFleet,
    conditions: Conditions = NOTHING_SPECIAL,
    seed: int = 0,
) -> FleetRun:
    """Route every request of the workload with the policy and let the engines batch them.

    A function of its arguments: same in, same bytes out. Raises InputError when a row has no token
    counts, when the trace's block size does not fit the cache's, when a change names no replica,
    or when the policy chooses no existing candidate.
    """
    check_seed(seed)
    columns = fleet.candidates
    state = fleet_state(workload, fleet, conditions.signals)
    _set_up(state, policy, fleet, conditions)
    traffic = _traffic(workload, fleet, conditions, columns)
    traffic.rules["same_columns"] = _all_serve_all(workload, fleet, state)
    for signal in ("queue", "prefix", "engine", "session"):
        traffic.rules[signal] = signal in policy.reads
    traffic.rules["steps"] = bool(policy.reads & {"context", "decode", IN_FLIGHT} or fleet.split)
    reason = np.zeros(len(workload), dtype=np.int8)
    arguments = (
        policy.choose,
        policy.parameter_values,
        state,
        traffic,
        np.full(ROWS * columns.shape[0], np.nan),
        np.full(2 * max(1, workload.session_count), NONE, dtype=np.int32),
        reason,
        np.zeros(1, dtype=REQUEST),
        len(policy.reasons),
        seed,
    )
    loop = batching_loop(policy.reads)
    wrong = loop(*arguments)
    while wrong == CHANGED:
        membership_change()(state, traffic)
        wrong = loop(*arguments)
    if wrong != DONE:
        raise bad_choice(workload, policy, columns.shape[0], wrong)
    return FleetRun(workload, policy, fleet, conditions, seed, reason, traffic.waits, state)


def fleet_state(workload: Workload, fleet: BatchingFleet, signals: Signals) -> Fleet:
    """The state of the fleet before the first request of the workload comes.

    Raises InputError as ``simulate_fleet`` does.
    """
    questions, blocks = _questions(workload, fleet)
    capacities = np.array([engine.kv_blocks for engine in fleet.engines], dtype=np.int32)
    columns = fleet.candidates
    state = idle_fleet(questions, blocks, _engines(fleet), capacities, signals, columns.shape[0])
    state.in_flight.replica_of[:] = columns
    return state


def _set_up(state: Fleet, policy: Policy, fleet: BatchingFleet, conditions: Conditions) -> None:
    state.knowledge.clock["keeps_holders"] = "prefix" in policy.reads
    for r in {change.replica for change in conditions.changes}:
        first = min(
            (change for change in conditions.changes if change.replica == r),
            key=lambda change: change.time_ms,
        )
        if EVENTS[first.event] == JOINS:
            state.replicas["alive"][r] = 0
    if fleet.split is not None:
        link, split = state.link[0], fleet.split
        link["bytes_per_ms"], link["base_ms"] = split.bytes_per_ms, split.base_ms
        link["bytes_per_token"] = split.kv_bytes_per_token
        link["shares"], link["moves_all"] = split.contention, split.moves_all


def _traffic(
    workload: Workload, fleet: BatchingFleet, conditions: Conditions, columns: Ints
) -> Traffic:
    traffic = idle_traffic(len(workload), len(fleet.engines))
    traffic = traffic._replace(columns=columns, changes=_changes(fleet, conditions))
    rules = traffic.rules[0]
    rules["most_tries"] = conditions.most_tries
    loop, holding = conditions.closed_loop, conditions.holding
    if loop is not None:
        rules["concurrency"], rules["think_ms"] = loop.concurrency, loop.think_ms
        rules["due"] = min(loop.concurrency, len(workload))
    if holding is not None:
        rules["holds"], rules["hold_ms"] = 1, holding.wait_ms
        rules["most_held"], rules["order"] = holding.most_held, ORDERS[holding.order]
        rules["ageing"], rules["ttft_ms"] = holding.ageing, holding.ttft_ms
        traffic = traffic._replace(held=np.zeros(holding.most_held + 1, dtype=HELD))
    return traffic


def _changes(fleet: BatchingFleet, conditions: Conditions) -> Records:
    ordered = sorted(conditions.changes, key=lambda change: change.time_ms)
    changes = np.zeros(len(ordered), dtype=CHANGE)
    for k, change in enumerate(ordered):
        if not 0 <= change.replica < len(fleet.engines):
            wanted = f"a replica in 0..{len(fleet.engines) - 1}"
            raise wrong_value("change of a replica", "replica", change.replica, wanted)
        changes[k] = (change.time_ms, change.factor, change.replica, EVENTS[change.event])
    return changes


def _all_serve_all(workload: Workload, fleet: BatchingFleet, state: Fleet) -> bool:
    """Whether every request fits every replica, and all of them live from the start."""
    most = int((workload.prompt_tokens.astype(np.int64) + workload.output_tokens).max(initial=1))
    return bool(state.replicas["alive"].all()) and all(
        most - 1 <= engine.kv_blocks * engine.block_size and most <= engine.max_model_len
        for engine in fleet.engines
    )


def _questions(workload: Workload, fleet: BatchingFleet) -> tuple[Records, Ints]:
    lacking = np.flatnonzero((workload.prompt_tokens < 1) | (workload.output_tokens < 1))
    if lacking.size:
        row = int(lacking[0])
        raise InputError(
            f"workload row {row}: prompt_tokens is {workload.prompt_tokens[row]}, output_tokens is"
            f" {workload.output_tokens[row]}; expected at least 1 of each to batch"
        )
    chains = cache_chains(workload, fleet.engines[0].block_size)
    questions = np.zeros(len(workload), dtype=QUESTION)
    questions["arrival_ms"] = workload.arrival_ms
    questions["chain_start"] = chains.start
    questions["known_blocks"] = chains.known
    questions["prompt_blocks"] = chains.prompt
    questions["prompt_tokens"] = workload.prompt_tokens
    questions["output_tokens"] = workload.output_tokens
    questions["session"] = workload.session
    questions["priority"] = workload.priority
    questions["decode_row"] = NONE
    if fleet.split is not None:
        questions = _in_two_rows(questions)
    return questions, np.ascontiguousarray(chains.blocks)


def _in_two_rows(questions: Records) -> Records:
    """Each request as a prefill that generates one token, and its decode."""
    count = questions.shape[0]
    both = np.concatenate((questions, questions))
    prefills, decodes = both[:count], both[count:]
    prefills["decode_row"] = np.arange(count, 2 * count)
    prefills["output_tokens"] = 1
    prefills["known_blocks"] = prefills["prompt_blocks"]
    decodes["remote"] = 1
    return both


def _engines(fleet: BatchingFleet) -> Records:
    engines = np.zeros(len(fleet.engines), dtype=ENGINE)
    for r, engine in enumerate(fleet.engines):
        for name in IterationCosts.__struct_fields__:
            engines[name][r] = getattr(engine.costs, name)
        for name in (*ENGINE_LIMITS[1:], "reserve_full", "by_priority"):
            engines[name][r] = getattr(engine, name)
        engines["see_late"][r] = engine.async_scheduling
    return engines
