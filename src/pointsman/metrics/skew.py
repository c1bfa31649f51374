"""How unevenly load is spread over replicas."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray


def skew_ratio(loads: NDArray[Any], mean: float | None = None) -> float:
    """(largest - smallest) / mean over the replicas; 0.0 when there is no load.

    0 means even; the number of replicas means that one replica has everything. ``mean`` may be
    given where it is known more exactly than from the loads.
    Source: ``load_skew_ratio`` and ``imbalance_ratio`` of the two lessons.
    """
    average = float(loads.mean()) if mean is None else mean
    return float((loads.max() - loads.min()) / average) if average else 0.0
