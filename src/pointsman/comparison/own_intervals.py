"""Where the figures of one run lie by themselves, as far as the noise of the trace goes.

A difference on the same requests has far less noise in it: policies are compared by that
(``differences.py``). These are for a figure that stands alone, such as a point over load.
"""

from __future__ import annotations

import numpy as np

from pointsman.comparison.differences import LEAST_REQUESTS, Outcome
from pointsman.core.errors import InputError
from pointsman.verdict.bootstrap import Figure, mean_of, own_bootstrap, percentile_of
from pointsman.verdict.uncertainty import Interval
from pointsman.workload.workload import Floats

_FIGURES: tuple[tuple[str, str, Figure], ...] = (
    ("goodput_fraction", "met", mean_of),
    ("p99_ttft_ms", "ttft_ms", percentile_of(0.99)),
    ("p99_e2e_ms", "e2e_ms", percentile_of(0.99)),
)


def own_intervals(outcome: Outcome, seed: int) -> dict[str, Interval | None]:
    """By figure; None where too few requests have it."""
    return {
        name: _interval(column, figure, seed)
        for name, of, figure in _FIGURES
        if (column := getattr(outcome, of)) is not None
    }


def _interval(column: Floats, figure: Figure, seed: int) -> Interval | None:
    if np.count_nonzero(~np.isnan(column)) < LEAST_REQUESTS:
        return None
    try:
        return own_bootstrap(column, figure, seed)
    except InputError:  # a resample in which nobody has the figure
        return None
