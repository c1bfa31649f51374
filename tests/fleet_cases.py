"""Fleets under every condition, as hypothesis draws them, in the oracle's words and in ours.

Times and costs are sums of powers of two as far as that goes, so that ties are common and exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from pointsman import POLICIES, workload_of_columns
from pointsman.costs.iteration import IterationCosts
from pointsman.policies.policy import (
    CACHED_TOKENS,
    CONTEXT_TOKENS,
    FREE_AT_MS,
    ITERATION_MS,
    KV_USE,
    PENDING_TOKENS,
    REQUESTS,
    RUNNING_REQUESTS,
    WAITING_REQUESTS,
    WORK_MS,
    policy,
)
from pointsman.sim.batching import BatchingFleet, Engine, FleetRun, Split, simulate_fleet
from pointsman.sim.conditions import Change, ClosedLoop, Conditions, Holding
from pointsman.sim.knowledge import Signals
from pointsman.sim.routers import DEALT, Routers
from tests import batching_oracle
from tests.fleet_oracle import NearTieError
from tests.fleet_replicas import Hold, Link, Setting


@policy(
    rule="The least of a sum in which every signal has a part.",
    source="these tests",
    reasons=("least",),
    reads=("queue", "requests", "prefix", "work", "pending", "context", "engine", "decode"),
)
def looks_at_all(request, view, parameters):
    best, least = 0, np.inf
    for i in range(view.shape[1]):
        score = 64.0 * view[REQUESTS, i]
        score += 32.0 * view[WAITING_REQUESTS, i]
        score += 16.0 * view[RUNNING_REQUESTS, i]
        score += 256.0 * view[KV_USE, i]
        score -= 4.0 * view[CACHED_TOKENS, i]
        score += 2.0 * view[PENDING_TOKENS, i]
        score += 1.0 * view[CONTEXT_TOKENS, i]
        score += 0.5 * view[WORK_MS, i]
        score += 0.25 * (view[FREE_AT_MS, i] - request.now_ms)
        score += 0.125 * view[ITERATION_MS, i]
        if score < least:
            best, least = i, score
    return best, 0


@policy(
    rule="The fewest tokens: those that came back, and those of prompts to be computed.",
    source="these tests",
    reasons=("least",),
    reads=("prefix", "work", "in_flight"),
)
def looks_at_each(request, view, parameters, in_flight):
    best, least = 0, np.inf
    for c in range(view.shape[1]):
        r = in_flight.replica_of[c, 0]
        account, tokens = in_flight.accounts[r], 0
        for k in range(account.counts):
            tokens += in_flight.flights[in_flight.running[r, k]].tokens_out + account.steps
        i = account.newest
        while i != -1:
            tokens += in_flight.flights[i].uncached_tokens
            i = in_flight.flights[i].older
        if tokens < least:
            best, least = c, tokens
    return best, 0


def fewest_of_each(world, job, listed):
    return min(range(len(listed)), key=lambda c: tokens_of_each(world, job, listed[c][0]))


def tokens_of_each(world, job, r):
    replica = world.replicas[r]
    came = sum(row.generated for row in replica.running if row.job.router == job.router)
    return came + sum(row.uncached for row in replica.own(job.router) if row.generated == 0)


def takes_turns(world, job, listed):
    return world.sequences[job.router] % len(listed)


def fewest_requests(world, job, listed):
    first = world.sequences[job.router] % len(listed)
    order = [(first + k) % len(listed) for k in range(len(listed))]
    return min(order, key=lambda c: requests(world, job, listed[c]))


def requests(world, job, pair):
    sent = sum(world.replicas[r].requests(job.router) for r in pair[:2] if r >= 0)
    return sent + len(world.held_before(pair[0]))


def least_of_all(world, job, listed):
    scores = [score(world, job, pair) for pair in listed]
    best = min(range(len(listed)), key=lambda c: scores[c])
    if any(0.0 < other - scores[best] < 1e-6 for other in scores):
        raise NearTieError
    return best


def score(world, job, pair):
    prefill, decode = world.replicas[pair[0]], world.replicas[pair[1]]
    answers = prefill if pair[1] < 0 else decode
    reading = world.read[pair[0]] if world.setting.metrics_age_ms else prefill.reading
    waiting, running, kv_use, _ = reading
    pending = sum(row.uncached for row in prefill.own(job.router) if row.generated == 0)
    held = world.held_before(pair[0])
    pending += sum(each.uncached for each in held)
    wait_ms = prefill.wait_ms(world.now, held, job)
    if pair[1] >= 0:
        wait_ms += ahead_of_decode_ms(world, job, pair[1])
    total = 64.0 * requests(world, job, pair) + 32.0 * waiting + 16.0 * running + 256.0 * kv_use
    total += 2.0 * pending - 4.0 * world.cached_tokens(job, pair[0])
    total += sum(each.job.arrival.prompt for each in held)
    total += answers.context_tokens(job.router) + 0.5 * world.expected_work_ms(job, pair[0])
    return total + 0.25 * wait_ms + 0.125 * answers.iteration_ms(job.router)


def ahead_of_decode_ms(world, job, r):
    """Hand-off, the wait for a seat and blocks, and the iteration of the first token."""
    replica, link = world.replicas[r], world.link
    held = 0 if link.moves_all else world.cached_tokens(job, r)
    under_way = sum(row.job.router == job.router for row, _ in world.transfers)
    share = under_way + 1 if link.shares else 1
    moved = (job.arrival.prompt - held) * link.bytes_per_token
    handoff_ms = link.base_ms + moved * share / link.bytes_per_ms
    return handoff_ms + decode_wait_ms(world, job, replica) + replica.iteration_ms(job.router)


def decode_wait_ms(world, job, replica):
    """As many have to end there as lack seats or tokens, at the pace at which they end."""
    answer = sum(world.answers) / len(world.answers) if world.answers else 16.0
    context, count = replica.context_tokens(job.router), len(replica.own(job.router))
    room = replica.engine.capacity_blocks * replica.engine.block_size
    excess = context + job.arrival.prompt + answer - room
    lacking = max(0.0, replica.requests(job.router) + 1 - replica.engine.max_num_seqs)
    if excess > 0:
        lacking = max(lacking, excess / max(1.0, context / max(1, count)))
    return replica.ending_ms(lacking, job.router)


RULES = {
    "round_robin": (POLICIES["round_robin"], takes_turns),
    "least_requests": (POLICIES["least_requests"], fewest_requests),
    "looks_at_all": (looks_at_all, least_of_all),
    "looks_at_each": (looks_at_each, fewest_of_each),
}


@dataclass(frozen=True)
class Case:
    """One thing to simulate, in the oracle's words; the last two are the simulator's only."""

    setting: Setting
    arrivals: tuple[batching_oracle.Arrival, ...]
    rule: str
    event_delay_ms: float = 0.0
    has_sessions: bool = False
    dealt: str = "random"


def simulated(case: Case) -> FleetRun:
    setting, arrivals = case.setting, case.arrivals
    chains = [arrival.chain for arrival in arrivals]
    workload = workload_of_columns(
        [arrival.time_ms for arrival in arrivals],
        prompt_tokens=[arrival.prompt for arrival in arrivals],
        output_tokens=[arrival.output for arrival in arrivals],
        priority=[arrival.priority for arrival in arrivals],
        chain_start=np.cumsum([0, *map(len, chains)]),
        chain_blocks=[block for chain in chains for block in chain],
        block_size_tokens=setting.engines[0].block_size,
        session=[k % 3 for k in range(len(arrivals))] if case.has_sessions else None,
    )
    loop = ClosedLoop(setting.concurrency, setting.think_ms) if setting.concurrency else None
    hold = setting.hold
    conditions = Conditions(
        signals=Signals(setting.metrics_age_ms, case.event_delay_ms),
        holding=Holding(**vars(hold)) if hold else None,
        closed_loop=loop,
        changes=[Change(*change) for change in setting.changes],
        most_tries=setting.most_tries,
        routers=Routers(setting.routers, case.dealt),
    )
    rule = RULES[case.rule][0] if case.rule in RULES else POLICIES[case.rule]
    return simulate_fleet(workload, rule, fleet_of(setting), conditions)


def fleet_of(setting: Setting) -> BatchingFleet:
    engines = tuple(
        Engine(
            IterationCosts(*each.costs),
            kv_blocks=each.capacity_blocks,
            block_size=each.block_size,
            max_num_seqs=each.max_num_seqs,
            max_num_batched_tokens=each.max_num_batched_tokens,
            reserve_full=each.reserve_full,
            async_scheduling=each.async_scheduling,
            max_model_len=each.max_model_len,
            by_priority=each.by_priority,
        )
        for each in setting.engines
    )
    link = setting.link
    if link is None:
        return BatchingFleet(engines)
    split = Split(
        link.prefills,
        link.bytes_per_token,
        link.bytes_per_ms,
        link.base_ms,
        link.shares,
        link.moves_all,
    )
    return BatchingFleet(engines, split)


def eighths(least, most):
    return st.integers(8 * least, 8 * most).map(lambda n: n / 8)


TIMES = st.integers(0, 32).map(lambda n: 64.0 * n) | eighths(0, 2000)


@st.composite
def engines(draw, block_size: int):
    costs = (
        draw(eighths(20, 200)),
        draw(eighths(0, 16)),
        draw(eighths(0, 16)),
        draw(st.integers(0, 16)) / 16,
        draw(st.integers(0, 4)) / 64,
    )
    return batching_oracle.Engine(
        max_num_seqs=draw(st.integers(1, 4)),
        max_num_batched_tokens=draw(st.integers(4, 40)),
        capacity_blocks=draw(st.integers(20, 100)) // block_size,
        block_size=block_size,
        reserve_full=draw(st.booleans()),
        costs=costs,
        by_priority=draw(st.booleans()),
        async_scheduling=draw(st.booleans()),
        max_model_len=draw(st.sampled_from((1 << 20, 1 << 20, 1 << 20, 36))),
    )


@st.composite
def arrivals(draw, block_size: int):
    found = []
    for _ in range(draw(st.integers(2, 14))):
        prompt = draw(st.integers(1, 24))
        family, length = draw(st.integers(0, 2)), draw(st.integers(0, 6))
        chain = range(family * 8, family * 8 + min(length, prompt // block_size))
        found.append(
            batching_oracle.Arrival(
                time_ms=draw(TIMES),
                prompt=prompt,
                output=draw(st.integers(1, 16)),
                chain=tuple(chain),
                priority=draw(st.integers(-1, 1)),
            )
        )
    return tuple(sorted(found, key=lambda each: each.time_ms))


changes = st.lists(
    st.tuples(
        TIMES,
        st.integers(0, 4),
        st.sampled_from(("dies", "dies", "joins", "slows")),
        st.sampled_from((0.5, 2.0, 4.0)),
    ),
    max_size=6,
)

holds = st.builds(
    Hold,
    wait_ms=st.integers(0, 8).map(lambda n: 16.0 * n),
    order=st.sampled_from(("fcfs", "shortest_prefill", "earliest_deadline")),
    most_held=st.integers(1, 6),
    ageing=st.sampled_from((0.0, 0.25, 1.0)),
    ttft_ms=st.sampled_from((0.0, 128.0, 512.0)),
)

links = st.builds(
    Link,
    prefills=st.integers(1, 2),
    base_ms=st.sampled_from((0.0, 8.0, 96.5)),
    bytes_per_ms=st.sampled_from((0.0625, 0.5)) | st.floats(0.02, 2.0),
    bytes_per_token=st.just(1.0),
    shares=st.booleans(),
    moves_all=st.booleans(),
)


@st.composite
def cases(draw, rules=tuple(RULES)):
    size = draw(st.sampled_from((1, 2, 4)))
    rule = draw(st.sampled_from(rules))
    # Of a pair the steps of those that just received are not told apart.
    link = None if rule == "looks_at_each" else draw(st.none() | links)
    least = link.prefills + 1 if link else 1
    replicas = draw(st.integers(least, 4))
    routers = draw(st.sampled_from((1, 1, 2, 3)))
    setting = Setting(
        engines=tuple(draw(engines(size)) for _ in range(replicas)),
        link=link,
        changes=tuple(each for each in draw(changes) if each[1] < replicas),
        most_tries=draw(st.integers(1, 3)),
        concurrency=draw(st.just(0) | st.integers(1, 5)),
        think_ms=draw(st.sampled_from((0.0, 50.0))),
        hold=draw(st.none() | holds) if routers == 1 else None,
        metrics_age_ms=draw(st.sampled_from((0.0, 0.0, 100.0, 700.0))),
        reads_prefix=rule.startswith("looks"),
        routers=routers,
    )
    return Case(setting, draw(arrivals(size)), rule, dealt=draw(st.sampled_from(DEALT)))
