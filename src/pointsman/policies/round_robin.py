"""One after the other."""

from __future__ import annotations

from pointsman.policies.policy import Parameters, Request, View, policy


@policy(
    rule="Each request goes to the next replica in turn; no state of the replicas is read.",
    source="the lesson on serving replica routing",
    reasons=("round_robin",),
    reads=(),
)
def round_robin(request: Request, view: View, parameters: Parameters) -> tuple[int, int]:
    """Take the candidates in turn."""
    return request.sequence % view.shape[1], 0
