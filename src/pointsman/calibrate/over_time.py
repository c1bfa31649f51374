"""The requests that run and wait in a recorded engine, over time, beside the simulated ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pointsman.calibrate.gauge_clock import clock_offset_ms
from pointsman.calibrate.recording import Recording, Times
from pointsman.workload.workload import Floats


@dataclass(frozen=True, eq=False)
class Course:
    """Requests at each sample of a gauge, and how far the simulated ones are off.

    A difference is a part of the most that was recorded at once, running and waiting together.
    """

    recorded: Floats
    simulated: Floats
    most: float

    @property
    def mean_difference(self) -> float:
        """The mean size of the difference."""
        return float(np.mean(np.abs(self.simulated - self.recorded))) / self.most

    @property
    def worst_difference(self) -> float:
        """The largest size of the difference."""
        return float(np.max(np.abs(self.simulated - self.recorded))) / self.most


@dataclass(frozen=True, eq=False)
class OverTime:
    """Both gauges at the instants ``at_ms`` from the first arrival."""

    at_ms: Floats
    running: Course
    waiting: Course


def over_time(recording: Recording, simulated: Times) -> OverTime | None:
    """The recorded gauges and the simulated requests at the same instants.

    None without gauges, and where they contradict the recorded requests. A simulated request runs
    from when it is first scheduled until it is finished: one that is preempted meanwhile counts as
    running, where the engine's gauge counts it as waiting.
    """
    gauges = recording.gauges
    offset_ms = None if gauges is None else clock_offset_ms(recording, recording.times, gauges)
    if gauges is None or offset_ms is None:
        return None
    at_ms = gauges.t_ms + offset_ms
    came, scheduled, finished = (
        np.searchsorted(np.sort(times), at_ms, side="right").astype(np.float64)
        for times in (simulated.arrival_ms, simulated.scheduled_ms, simulated.finish_ms)
    )
    most = float(np.max(gauges.running + gauges.waiting))
    return OverTime(
        at_ms,
        Course(gauges.running, scheduled - finished, most),
        Course(gauges.waiting, came - scheduled, most),
    )
