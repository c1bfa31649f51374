"""Several routers before one fleet, each with accounts of its own.

    accounts, running, sights    row q * replicas + r        router q, replica r
    holders, expected            row q * blocks + block      router q, block

What a router did not send it knows from the engines' gauges alone, by the live router's rule: what
waits and runs there beyond its own counts as another router's (docs/engines.md). Cache events reach
all of them at the same time; how long answers and prefills are, all learn from all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pointsman.core.checks import check_integer
from pointsman.core.compiled import inner, inner_inlined
from pointsman.core.errors import unknown_name
from pointsman.sim.batching_state import NONE, Fleet, Records
from pointsman.sim.knowledge import SIGHT
from pointsman.workload.streams import stream
from pointsman.workload.workload import Ints

RANDOM, SESSION = "random", "session"
DEALT = (RANDOM, SESSION)
MOST_ROUTERS = 64


@dataclass(frozen=True, slots=True)
class Routers:
    """``count`` of them, and how requests are dealt to them: each one at ``random``, or all of a
    ``session`` to the same one; without a session, all with the same first block."""

    count: int = 1
    dealt: str = RANDOM

    def __post_init__(self) -> None:
        check_integer("routers", "count", self.count, 1, MOST_ROUTERS)
        if self.dealt not in DEALT:
            raise unknown_name("routers", "way to deal", self.dealt, DEALT)


ONE_ROUTER = Routers()


def dealt_routers(questions: Records, chain_blocks: Ints, routers: Routers, seed: int) -> Ints:
    """The router that each request comes to."""
    if routers.count == 1:
        return np.zeros(questions.shape[0], dtype=np.int32)
    draws = stream(seed, "the router of a request")
    dealt: Ints = draws.integers(0, routers.count, len(questions), dtype=np.int32)
    if routers.dealt == SESSION:
        _, number = np.unique(_keys(questions, chain_blocks), return_inverse=True)
        return dealt[number]
    return dealt


def _keys(questions: Records, chain_blocks: Ints) -> Ints:
    """As the loop's ``_request_key``."""
    own = 3 * np.arange(questions.shape[0]) + 2
    has_blocks = questions["prompt_blocks"] > 0
    if has_blocks.any():
        first = np.where(has_blocks, questions["chain_start"], 0)
        own = np.where(has_blocks, 3 * chain_blocks[first].astype(np.int64) + 1, own)
    session = questions["session"].astype(np.int64)
    return np.where(session >= 0, 3 * session, own)


def with_routers(state: Fleet, count: int) -> Fleet:
    """The state with accounts for so many routers, before anything was sent."""
    if count == 1:
        return state
    replicas, seats = state.order.shape
    blocks, known = state.knowledge.told.shape[0], state.knowledge
    known.clock["routers"] = count
    return state._replace(
        in_flight=state.in_flight._replace(
            accounts=np.tile(state.in_flight.accounts, count),
            running=np.full((count * replicas, seats), NONE, dtype=np.int32),
        ),
        knowledge=known._replace(
            holders=np.tile(known.holders, (count, 1)),
            expected=np.zeros((count * blocks, replicas), dtype=np.int32),
            sights=np.zeros(count * replicas, dtype=SIGHT),
        ),
    )


@inner_inlined
def own_row(fleet: Fleet, i: int, r: int) -> int:
    """Where the router of row i counts what it has on the replica."""
    return fleet.questions[i].router * fleet.replicas.shape[0] + r  # type: ignore[no-any-return]


@inner
def forget_steps(fleet: Fleet, r: int) -> None:
    """The stretch has ended: its tokens are counted by request now, by all but the first router."""
    for q in range(1, fleet.knowledge.clock[0].routers):
        fleet.in_flight.accounts[q * fleet.replicas.shape[0] + r].steps = 0


@inner
def list_own_running(fleet: Fleet, row: int, r: int) -> None:
    """Write what the replica runs of the router that chooses into its row."""
    own, sight = fleet.in_flight.running, fleet.knowledge.sights[row]
    count, decodes = 0, 0
    for place in range(fleet.replicas[r].running):
        i = fleet.order[r, place]
        if own_row(fleet, i, r) == row:
            own[row, count] = i
            count += 1
            if fleet.progress[i].chunk > 0:
                decodes += 1
    fleet.in_flight.accounts[row].counts = count
    sight.decodes = decodes


@inner
def note_others(fleet: Fleet, r: int) -> None:
    """What each router takes for others' of what the gauges just read say; beyond 1, as the live
    router allows for a request on its way."""
    gauges, replicas = fleet.knowledge.gauges[r], fleet.replicas.shape[0]
    for q in range(fleet.knowledge.clock[0].routers):
        row = q * replicas + r
        account, sight = fleet.in_flight.accounts[row], fleet.knowledge.sights[row]
        pending = account.requests - account.decoding
        sight.waiting = max(0.0, gauges.waiting - pending - 1.0)
        beyond = gauges.waiting + gauges.running - account.requests - sight.waiting
        sight.running = max(0.0, beyond - 1.0)


@inner_inlined
def own_transfers(fleet: Fleet) -> int:
    """Hand-offs under way of the router that chooses."""
    link, clock = fleet.link[0], fleet.knowledge.clock[0]
    if clock.routers == 1:
        return link.active  # type: ignore[no-any-return]
    count = 0
    for k in range(link.active):
        if own_row(fleet, fleet.transfers[k], 0) == clock.own:
            count += 1
    return count
