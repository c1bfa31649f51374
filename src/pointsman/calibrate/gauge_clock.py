"""The clock of a recorded engine's gauges, set by the requests in the engine."""

from __future__ import annotations

import numpy as np

from pointsman.calibrate.gauges import Gauges
from pointsman.calibrate.recording import Recording, Times

_MOST_APART = (1.0, 0.02)  # requests in the engine, and a part of them, by the gauges and by us
_MOST_OFFSET_MS, _OFFSET_STEP_MS = 3000.0, 10.0


def clock_offset_ms(recording: Recording, times: Times, gauges: Gauges) -> float | None:
    """What to add to the gauges' clock: the middle of the offsets, up to 3 s, with which the
    requests in the engine agree best with those that run or wait by the gauges; None where even
    the best one does not agree."""
    end_ms = times.scheduled_ms.max()
    offsets = np.arange(-_MOST_OFFSET_MS, _MOST_OFFSET_MS + 1.0, _OFFSET_STEP_MS)
    finishes = np.sort(times.finish_ms)

    def disagreement(offset_ms: float) -> float:
        at_ms = gauges.t_ms + offset_ms
        came = np.searchsorted(recording.times.arrival_ms, at_ms, side="right")
        inside = came - np.searchsorted(finishes, at_ms, side="right")
        apart = np.abs(inside - gauges.running - gauges.waiting)
        return float(np.mean(apart[at_ms <= end_ms])) if np.any(at_ms <= end_ms) else np.inf

    each = np.array([disagreement(offset) for offset in offsets])
    least, part = _MOST_APART
    if not each.min() <= least + part * float(np.mean(gauges.running + gauges.waiting)):
        return None
    return float(np.mean(offsets[each == each.min()]))
