"""How full each replica was over time, in few enough samples to look at."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pointsman.sim.batching import FleetRun
from pointsman.sim.timeline import KV_USE, RUNNING_COUNT, WAITING_COUNT, even_samples

MOST_SAMPLES = 60


@dataclass(frozen=True, slots=True)
class ReplicaOverTime:
    """What one replica had at each sample."""

    running: tuple[int, ...]
    waiting: tuple[int, ...]
    kv_used_fraction: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class OverTime:
    """Every replica at the same instants: sample k is at k x ``step_ms``, before what happens then.

    At most MOST_SAMPLES of them; steps are whole seconds.
    """

    step_ms: float
    replicas: tuple[ReplicaOverTime, ...]


def over_time_of(run: FleetRun) -> OverTime:
    """The samples that the run took of each replica, evenly thinned."""
    step_ms, samples = even_samples(run.state)
    stride = max(1, math.ceil(samples.shape[1] / MOST_SAMPLES))
    kept = samples[:, ::stride].astype(np.float64)
    return OverTime(
        step_ms=step_ms * stride,
        replicas=tuple(
            ReplicaOverTime(
                running=tuple(each[:, RUNNING_COUNT].astype(int).tolist()),
                waiting=tuple(each[:, WAITING_COUNT].astype(int).tolist()),
                kv_used_fraction=tuple(np.round(each[:, KV_USE], 6).tolist()),
            )
            for each in kept
        ),
    )
