"""How full each replica was over time: samples at even steps, the steps doubled when they run out.

samples[r, k]     running, waiting, used fraction of the KV blocks, at k x step[r]
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pointsman.core.compiled import inner
from pointsman.sim.batching_engine import sync_stretch
from pointsman.sim.batching_state import Fleet

RUNNING, WAITING, KV_USE = range(3)


@inner
def sample_until(fleet: Fleet, r: int, now_ms: float) -> None:
    """Take the samples that were due before now; called before anything changes on the replica."""
    step, samples = fleet.steps[r], fleet.samples
    while step.taken * step.step_ms <= now_ms:
        if step.taken == samples.shape[1]:
            step.taken //= 2
            step.step_ms *= 2.0
            for k in range(step.taken):
                for figure in range(samples.shape[2]):
                    samples[r, k, figure] = samples[r, 2 * k, figure]
            continue
        replica = fleet.replicas[r]
        sync_stretch(fleet, r, step.taken * step.step_ms)
        samples[r, step.taken, RUNNING] = replica.running + replica.receiving
        samples[r, step.taken, WAITING] = replica.waiting
        used = (replica.capacity - replica.free) / replica.capacity
        samples[r, step.taken, KV_USE] = used
        step.taken += 1


@inner
def sample_all(fleet: Fleet, now_ms: float) -> None:
    """Take the samples of every replica that were due before now."""
    for r in range(fleet.replicas.shape[0]):
        if fleet.steps[r].taken * fleet.steps[r].step_ms <= now_ms:
            sample_until(fleet, r, now_ms)


def even_samples(fleet: Fleet) -> tuple[float, Any]:
    """The longest step of all replicas in ms, and every replica's samples at it:
    (replicas, samples, 3)."""
    steps = fleet.steps
    widest = float(steps["step_ms"].max())
    strides = (widest / steps["step_ms"]).astype(int)
    rows = [
        fleet.samples[r, : steps["taken"][r] : stride] for r, stride in enumerate(strides.tolist())
    ]
    length = min(len(row) for row in rows)
    return widest, np.stack([row[:length] for row in rows])
