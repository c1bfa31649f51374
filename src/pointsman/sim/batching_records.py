"""A workload, a fleet and its conditions, made into the records that the event loop runs over."""

from __future__ import annotations

import numpy as np

from pointsman.core.errors import InputError, MachineError, wrong_value
from pointsman.costs.iteration import IterationCosts
from pointsman.dispatch.hold_order import ORDERS
from pointsman.policies.policy import IN_FLIGHT, Policy
from pointsman.sim.batching_fleet import ENGINE_LIMITS, BatchingFleet
from pointsman.sim.batching_state import (
    ENGINE,
    NONE,
    QUESTION,
    Fleet,
    Records,
    idle_fleet,
)
from pointsman.sim.blocks import cache_chains
from pointsman.sim.conditions import EVENTS, Conditions
from pointsman.sim.knowledge import Signals
from pointsman.sim.membership import JOINS
from pointsman.sim.routers import ONE_ROUTER, Routers, dealt_routers, with_routers
from pointsman.sim.traffic import CHANGE, HELD, Traffic, idle_traffic
from pointsman.workload.workload import Ints, Workload


def fleet_state(
    workload: Workload,
    fleet: BatchingFleet,
    signals: Signals,
    routers: Routers = ONE_ROUTER,
    seed: int = 0,
) -> Fleet:
    """The state of the fleet before the first request of the workload comes.

    ``seed``: by which requests are dealt to the routers.

    Raises InputError as ``simulate_fleet`` does.
    """
    questions, blocks = _questions(workload, fleet)
    questions["router"] = dealt_routers(questions, blocks, routers, seed)
    if fleet.split is not None:
        questions = _in_two_rows(questions)
    capacities = np.array([engine.kv_blocks for engine in fleet.engines], dtype=np.int32)
    columns = fleet.candidates
    try:
        state = idle_fleet(
            questions, blocks, _engines(fleet), capacities, signals, columns.shape[0]
        )
    except MemoryError:
        raise MachineError(
            f"fleet: there is not enough memory to simulate {capacities.size:,} replicas of up to"
            f" {capacities.max():,} KV blocks; expected fewer (kv_blocks), or larger ones"
            " (block_size)"
        ) from None
    state.in_flight.replica_of[:] = columns
    return with_routers(state, routers.count)


def set_up(state: Fleet, policy: Policy, fleet: BatchingFleet, conditions: Conditions) -> None:
    """Set the state to how things stand at first: who is absent, what the link between is like."""
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


def traffic_for(
    workload: Workload, policy: Policy, fleet: BatchingFleet, conditions: Conditions
) -> Traffic:
    """The requests that are on no engine yet, and the rules by which they come and are routed.

    Raises InputError where a change names no replica of the fleet.
    """
    traffic = idle_traffic(len(workload), len(fleet.engines))
    traffic = traffic._replace(
        columns=fleet.candidates,
        changes=_changes(fleet, conditions),
        routed_by=np.zeros(conditions.routers.count, dtype=np.int64),
    )
    rules = traffic.rules[0]
    for signal in ("queue", "prefix", "engine", "session"):
        rules[signal] = signal in policy.reads
    rules["gauges"] = "engine" in policy.reads or conditions.routers.count > 1
    rules["steps"] = bool(policy.reads & {"context", "decode", IN_FLIGHT} or fleet.split)
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


def all_serve_all(workload: Workload, fleet: BatchingFleet, state: Fleet) -> bool:
    """Whether every request fits every replica, and all of them live from the start."""
    most = int((workload.prompt_tokens.astype(np.int64) + workload.output_tokens).max(initial=1))
    return bool(state.replicas["alive"].all()) and all(
        most - 1 <= engine.kv_blocks * engine.block_size and most <= engine.max_model_len
        for engine in fleet.engines
    )


def _too_short(workload: Workload, row: int, count: int) -> InputError:
    tokens = (int(workload.prompt_tokens[row]), int(workload.output_tokens[row]))
    prompt, output = ("missing" if n < 0 else str(n) for n in tokens)
    return InputError(
        f"{workload.source.place(row)}: prompt_tokens is {prompt}, output_tokens is {output};"
        f" expected at least 1 of each to batch ({count:,} of {len(workload):,} requests lack them)"
    )


def _questions(workload: Workload, fleet: BatchingFleet) -> tuple[Records, Ints]:
    lacking = np.flatnonzero((workload.prompt_tokens < 1) | (workload.output_tokens < 1))
    if lacking.size:
        raise _too_short(workload, int(lacking[0]), lacking.size)
    chains = cache_chains(workload, fleet.engines[0].block_size, fleet.keeps_answers)
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
        for name in (*ENGINE_LIMITS[1:], "reserve_full", "by_priority", "shares_late"):
            engines[name][r] = getattr(engine, name)
        engines["see_late"][r] = engine.async_scheduling
    return engines
