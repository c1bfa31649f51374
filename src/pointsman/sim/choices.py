"""What both simulators refuse of a policy: choices that are none, signals that are not there."""

from __future__ import annotations

from pointsman.core.errors import InputError
from pointsman.policies.policy import Policy
from pointsman.workload.workload import Workload


def bad_choice(workload: Workload, policy: Policy, replicas: int, row: int) -> InputError:
    """What to say of a policy that chose what is not there, at that row of the workload."""
    return InputError(
        f"policy {policy.name} chose no candidate, or gave no reason, that exists for request"
        f" {workload.names.request(row)} (row {row}); expected a candidate in 0..{replicas - 1}"
        f" and a reason in 0..{len(policy.reasons) - 1}"
    )


def refuse_batching_signals(policy: Policy) -> None:
    """Refuse a policy that reads what replicas that serve one request at a time do not have."""
    if policy.needs_batching:
        raise InputError(
            f"policy {policy.name} reads {', '.join(policy.needs_batching)}, which replicas that"
            " serve a request at a time do not have; expected a fleet that batches, compare --fleet"
        )
