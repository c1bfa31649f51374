"""What choices for locality really cost in waiting, held against the bound they were made under.

A choice for a session or a prefix may wait longer than the shortest queue, by a slack. The wait
expected is bounded by the rule itself; the wait that then came need not be. On an engine that
batches, what is left of the iteration under way is not counted: every replica makes an arrival
wait for it, and no rule here looks at it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pointsman.metrics.latency import Spread, spread_of
from pointsman.policies.policy import Policy
from pointsman.sim.batching import FleetRun
from pointsman.sim.fifo import Routed
from pointsman.sim.shortest_waits import shortest_waits_ms
from pointsman.workload.workload import Floats

FOR_LOCALITY = ("sticky_session", "prefix_locality")
ROUNDING_MS = 1e-6


@dataclass(frozen=True, slots=True)
class LocalityAudit:
    """Choices for locality; extra waits are beyond the shortest one expected at that instant.

    ``bound_ms`` is the slack, None where each choice has a bound of its own, what its hit saves.
    ``over_bound`` counts those that really waited longer than bound allows.
    """

    choices: int
    bound_ms: float | None
    expected_extra_ms: Spread
    realised_extra_ms: Spread
    over_bound: int

    @property
    def over_bound_fraction(self) -> float:
        """Of the choices for locality; 0 where there are none."""
        return self.over_bound / self.choices if self.choices else 0.0


def audit_fleet(run: FleetRun) -> LocalityAudit | None:
    """Of a run on a fleet that batches; None for a policy without such a bound, and where prefill
    and decode are apart: there the wait expected is that of a pair, hand-off and decode included,
    and the one that came is known of the prefill alone."""
    if not _has_bound(run.policy) or run.fleet.split is not None:
        return None
    bound = _slack(run.policy)
    bounds = run.saved_ms if bound is None else np.full(len(run.workload), bound)
    waited = run.queue_wait_ms - run.boundary_wait_ms
    realised = np.where(run.finished, waited - run.shortest_wait_ms, np.nan)
    expected = run.expected_wait_ms - run.shortest_wait_ms
    return _audit(run.policy, run.reason, (expected, realised, bounds))


def audit_single(routed: Routed) -> LocalityAudit | None:
    """Of a run on replicas that serve one request at a time, whose waits are known exactly."""
    bound = _slack(routed.policy)
    if not _has_bound(routed.policy) or bound is None:
        return None
    shortest = shortest_waits_ms(
        routed.workload.arrival_ms, routed.replica, routed.finish_ms, routed.fleet.replicas
    )
    extra = routed.queue_wait_ms - shortest
    return _audit(routed.policy, routed.reason, (extra, extra, np.full(extra.shape, bound)))


def _has_bound(policy: Policy) -> bool:
    return any(reason in policy.reasons for reason in FOR_LOCALITY)


def _slack(policy: Policy) -> float | None:
    return policy.parameters.get("slack_ms")


def _audit(
    policy: Policy, reason: np.ndarray, columns: tuple[Floats, Floats, Floats]
) -> LocalityAudit:
    named = [k for k, name in enumerate(policy.reasons) if name in FOR_LOCALITY]
    chosen = np.isin(reason, named) & ~np.isnan(columns[0])
    expected, realised, bounds = (column[chosen] for column in columns)
    with np.errstate(invalid="ignore"):
        over = realised > bounds + ROUNDING_MS
    return LocalityAudit(
        choices=int(np.count_nonzero(chosen)),
        bound_ms=_slack(policy),
        expected_extra_ms=spread_of(expected),
        realised_extra_ms=spread_of(realised),
        over_bound=int(np.count_nonzero(over)),
    )
