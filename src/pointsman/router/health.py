"""What is known of a replica's health: from the connects of requests, and from probes.

    up           takes its share; after it came back, a growing one
    unwell       takes connections, but does not answer probes: only where nobody is up
    not_ready    says so itself (503): gets nothing
    unreachable  takes no connections: gets nothing

Every mark is tested again at the next probe. None of them touches a count. What the answers to
requests say is in outliers.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from pointsman.router.settings import Probing


class State(StrEnum):
    """See the head of this file."""

    UP = "up"
    UNWELL = "unwell"
    NOT_READY = "not_ready"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong the last time, and when by the clock."""

    error: str
    at_s: float


class Health:
    """One replica's. ``changed`` is called after its state has become another one."""

    def __init__(
        self, probing: Probing, clock_s: Callable[[], float], changed: Callable[[], None]
    ) -> None:
        self.state = State.UP
        self.last_failure: Failure | None = None
        # It was away in a way that a process that starts anew is; whoever acts on it clears it.
        self.may_have_restarted = False
        self._probing = probing
        self._clock_s = clock_s
        self._changed = changed
        self._misses = 0
        self._back_at_s: float | None = None  # None: never away, or long back

    def start_slowly(self) -> None:
        """From now on as one that has just come back."""
        self._back_at_s = self._clock_s()

    def share(self) -> float:
        """The fraction of requests that it is a candidate for, 1 but after a return."""
        if self._back_at_s is None:
            return 1.0
        away_ms = (self._clock_s() - self._back_at_s) * 1000.0
        if away_ms >= self._probing.slow_start_ms:
            self._back_at_s = None
            return 1.0
        return away_ms / self._probing.slow_start_ms

    @property
    def is_warming(self) -> bool:
        """Whether it is up with less than its whole share."""
        return self.state is State.UP and self.share() < 1.0

    # From the connects of requests.

    def cannot_be_reached(self, why: str) -> None:
        """No connection could be made; one failure suffices."""
        self._become(State.UNREACHABLE, why)

    def was_reached(self) -> None:
        """A connection was made. What a probe found out, only a probe can take back."""
        if self.state is State.UNREACHABLE:
            self._come_back()

    # From answers to requests.

    def fails(self, why: str, time_ms: float) -> None:
        """It is set aside for so long; its probes may be well all the same."""
        self.last_failure = Failure(f"{why}; set aside for {time_ms:g} ms", self._clock_s())

    # From probes.

    def is_well(self) -> None:
        """It answered a probe as one that serves."""
        self._misses = 0
        if self.state is not State.UP:
            self._come_back()

    def is_not_ready(self, why: str) -> None:
        """It answered a probe by saying so."""
        self._become(State.NOT_READY, why)

    def missed_a_probe(self, why: str) -> None:
        """It took the connection and gave no proper answer; one that is up may do so once."""
        self._misses += 1
        if self.state is not State.UP or self._misses >= self._probing.misses:
            self._become(State.UNWELL, why)

    def _come_back(self) -> None:
        self.start_slowly()
        self._misses = 0
        self.state = State.UP
        self._changed()

    def _become(self, state: State, why: str) -> None:
        self.last_failure = Failure(why, self._clock_s())
        self.may_have_restarted |= state in (State.UNREACHABLE, State.NOT_READY)
        if self.state is not state:
            self.state = state
            self._changed()
