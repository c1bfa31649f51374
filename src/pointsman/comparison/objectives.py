"""What is asked of a service, told to the policies that route by it."""

from __future__ import annotations

from collections.abc import Sequence

from pointsman.metrics.goodput import Objectives
from pointsman.policies.policy import Policy


def with_objectives(
    texts: Sequence[str], policies: Sequence[Policy], objectives: Objectives | None
) -> list[Policy]:
    """Policies whose parameters ``ttft_ms`` and ``tpot_ms`` are the objectives', where the text
    that named them does not say otherwise."""
    return [
        policy.bind(**_of_objectives(text, policy, objectives))
        for text, policy in zip(texts, policies, strict=True)
    ]


def _of_objectives(text: str, policy: Policy, objectives: Objectives | None) -> dict[str, float]:
    given = {item.partition("=")[0] for item in text.split(":")[1:]}
    limits = {name: getattr(objectives, name, None) for name in ("ttft_ms", "tpot_ms")}
    return {
        name: limit
        for name, limit in limits.items()
        if limit is not None and name in policy.parameters and name not in given
    }
