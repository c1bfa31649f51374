"""What a simulation of a fleet that batches is compiled into, once for a version."""

from __future__ import annotations

from collections.abc import Iterable

from pointsman.core.compiled import Kernel
from pointsman.policies.policy import Policy
from pointsman.sim.batching_loop import batching_loop
from pointsman.sim.conditions import NOTHING_SPECIAL, Conditions
from pointsman.sim.membership import membership_change


def kernels_for(
    policies: Iterable[Policy], conditions: Conditions = NOTHING_SPECIAL
) -> tuple[Kernel, ...]:
    """The forms of the event loop that ``simulate_fleet`` runs, and what changes replicas."""
    loops = dict.fromkeys(batching_loop(policy.reads) for policy in policies)
    return (*loops, membership_change()) if conditions.changes else tuple(loops)
