"""The whole distribution of a quantity in some hundred numbers, small enough for a document.

A quantile is a value that occurred, by nearest rank like every other percentile, so that P50, P90,
P95, P99 and the worst of ``metrics/latency.py`` are among them to the last bit.
"""

from __future__ import annotations

import numpy as np

from pointsman.core.percentiles import nearest_rank
from pointsman.workload.workload import Floats

# Every percent, and every tenth of a percent in the tail, where objectives are lost.
QUANTILE_LEVELS = (
    *(percent / 100 for percent in range(100)),
    *(permille / 1000 for permille in range(991, 1001)),
)

Quantiles = tuple[float, ...] | None  # one a level; None where there are no values


def quantiles_of(values: Floats) -> Quantiles:
    """The values at QUANTILE_LEVELS; NaN is absent and not counted."""
    ordered = np.sort(values[~np.isnan(values)])
    if ordered.size == 0:
        return None
    return tuple(nearest_rank(ordered, level) for level in QUANTILE_LEVELS)
