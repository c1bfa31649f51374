"""Where a figure of repeated runs lies, from the requests of all of them.

Percentiles of runs are never averaged, and one run's percentile is no figure of the service: the
requests of all runs stand behind one another, in order of arrival, and are resampled in blocks that
keep together what waited together (``verdict/bootstrap.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pointsman.bench.client.figures import seen_of
from pointsman.bench.client.measure import Measured
from pointsman.core.errors import InputError
from pointsman.verdict.bootstrap import Figure, Resampling, mean_of, own_bootstrap, percentile_of
from pointsman.verdict.uncertainty import Interval
from pointsman.workload.workload import Floats

_QUANTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True)
class Intervals:
    """By ``mean_ttft_ms``, ``p99_e2e_ms`` and so on; ``seeds`` are those of the prompts.

    None where too few requests have the figure.
    """

    of: dict[str, Interval | None]
    runs: int
    seeds: tuple[int, ...]


def intervals(runs: Sequence[Measured], seed: int = 0) -> Intervals:
    """Intervals of means and percentiles over repeats of one load; ``seed`` is of resampling."""
    seen = [seen_of([row for row in run.rows if not row.is_warmup]) for run in runs]
    columns = {
        "ttft_ms": [each.answers.ttft_ms for each in seen],
        "ttft_from_send_ms": [each.ttft_from_send_ms for each in seen],
        "tpot_ms": [each.answers.tpot_ms for each in seen],
        "e2e_ms": [each.answers.e2e_ms for each in seen],
    }
    figures = {"mean": mean_of, **{name: percentile_of(q) for name, q in _QUANTILES.items()}}
    found = {
        f"{figure}_{name}": interval_of(column, figures[figure], seed)
        for name, column in columns.items()
        for figure in figures
    }
    return Intervals(found, len(runs), tuple(run.seed for run in runs))


def interval_of(
    runs: Sequence[Floats], figure: Figure, seed: int, resampling: Resampling | None = None
) -> Interval | None:
    """The interval of one figure, a column a run; None where too few requests have it."""
    values = np.concatenate([*runs, np.empty(0)])
    if np.count_nonzero(~np.isnan(values)) < 4:
        return None
    try:
        return own_bootstrap(values, figure, seed, resampling)
    except InputError:  # absent in a resample
        return None
