"""Where a KV cache is too small for what comes back to it, so that figures hang on its exact size.

A simulator that is good until the cache thrashes is good no further (sgl-project/sglang#38423):
which block goes first then decides what is computed again.
"""

from __future__ import annotations

from collections.abc import Iterable

from pointsman.metrics.serving import ServingMetrics

# Of all prompt tokens. So much prefill would be saved by a cache without bounds: as much as the
# roofline is off at best on recorded runs (12 %, docs/costs.md), so that from here on the cache's
# size and order are no smaller a source of error than the costs.
MOST_RECOMPUTED_FRACTION = 0.10

_NAMED = 4


def thrashes(metrics: ServingMetrics | None) -> bool:
    """Whether more of the prompt tokens are computed again than that; not where nobody counted."""
    return _fraction(metrics) > MOST_RECOMPUTED_FRACTION


def thrashing_warnings(runs: Iterable[tuple[str, ServingMetrics]]) -> tuple[str, ...]:
    """One sentence that names the runs in which a cache thrashed, or none."""
    found = [f"{name} {_fraction(metrics):.1%}" for name, metrics in runs if thrashes(metrics)]
    if not found:
        return ()
    named, further = ", ".join(found[:_NAMED]), len(found) - _NAMED
    more = f" and {further} more" if further > 0 else ""
    return (
        f"the KV cache is too small for what comes back to it: {named}{more} of the prompt tokens"
        " had been cached on that replica and were evicted before they came again; hit rates and"
        " latencies there are sensitive to the cache's exact size and order of eviction",
    )


def _fraction(metrics: ServingMetrics | None) -> float:
    fraction = None if metrics is None else metrics.recomputed_token_fraction
    return 0.0 if fraction is None else fraction
