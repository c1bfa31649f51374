"""Mean stages of a simulated request, from the means of its latencies.

    arrival ── queue wait ── prefill ── hand-off ── wait for decode ── first token ── decode ── last

Means add up where all are of the same requests; where they are not, nothing is said.
"""

from __future__ import annotations

from collections.abc import Mapping

from pointsman.metrics.latency import Spread

_MOVED = {"handoff": "handoff_ms", "decode_wait": "decode_wait_ms"}


def stages_of(spreads: Mapping[str, Spread]) -> dict[str, float]:
    """By the names that measured stages have; empty where something is unknown."""
    wait, first, whole = (spreads.get(f"{n}_ms") for n in ("queue_wait", "ttft", "e2e"))
    if wait is None or first is None or whole is None:
        return {}
    if wait.mean is None or first.mean is None or whole.mean is None:
        return {}
    moved = {name: spreads[of] for name, of in _MOVED.items() if of in spreads}
    if any(each.count != whole.count for each in (wait, first, *moved.values())):
        return {}
    between = {name: each.mean for name, each in moved.items() if each.mean is not None}
    return {
        "queue_wait": wait.mean,
        "prefill": first.mean - wait.mean - sum(between.values()),
        **between,
        "decode": whole.mean - first.mean,
    }
