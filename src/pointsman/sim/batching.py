"""A fleet of replicas that batch continuously, with finite KV caches (docs/simulator.md).

``batching_fleet`` says what the fleet is, ``batching_records`` prepares the records that
``batching_loop`` runs over, ``fleet_run`` holds what came of it. What others use stands here.
"""

from __future__ import annotations

import numpy as np

from pointsman.core.checks import check_seed
from pointsman.policies.policy import REQUEST, ROWS, Policy
from pointsman.sim.batching_fleet import MAX_REPLICAS, BatchingFleet, Engine, Split
from pointsman.sim.batching_loop import CHANGED, DONE, batching_loop
from pointsman.sim.batching_records import all_serve_all, fleet_state, set_up, traffic_for
from pointsman.sim.batching_state import NONE
from pointsman.sim.choices import bad_choice
from pointsman.sim.conditions import NOTHING_SPECIAL, Conditions
from pointsman.sim.fleet_run import FleetRun
from pointsman.sim.membership import membership_change
from pointsman.workload.workload import Workload

__all__ = [
    "MAX_REPLICAS",
    "BatchingFleet",
    "Engine",
    "FleetRun",
    "Split",
    "fleet_state",
    "simulate_fleet",
]


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
    check_seed("simulation", seed)
    traffic = traffic_for(workload, policy, fleet, conditions)
    routers = conditions.routers
    state = fleet_state(workload, fleet, conditions.signals, routers, seed)
    set_up(state, policy, fleet, conditions)
    is_always_listed = routers.count == 1 and all_serve_all(workload, fleet, state)
    traffic.rules["same_columns"] = is_always_listed
    candidates = traffic.columns.shape[0]
    reason = np.zeros(len(workload), dtype=np.int8)
    arguments = (
        policy.choose,
        policy.parameter_values,
        state,
        traffic,
        np.full(ROWS * candidates, np.nan),
        np.full((routers.count, 2 * max(1, workload.session_count)), NONE, dtype=np.int32),
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
        raise bad_choice(workload, policy, candidates, wrong)
    return FleetRun(workload, policy, fleet, conditions, seed, reason, traffic.waits, state)
