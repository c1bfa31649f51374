"""The one clock of a load: monotonic, in ms, 0 at the load's start."""

from __future__ import annotations

import time


class LoadClock:
    """Call it for the ms since it was made, or restarted."""

    __slots__ = ("_start_ns", "started_unix_s")

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Count from now."""
        self.started_unix_s = time.time()  # the time of day of its 0
        self._start_ns = time.perf_counter_ns()

    def __call__(self) -> float:
        """Milliseconds since the start."""
        return (time.perf_counter_ns() - self._start_ns) / 1e6
