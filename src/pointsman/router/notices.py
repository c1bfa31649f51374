"""Says on the router's terminal that a replica went away, and that it is back: once a change.

A replica that comes and goes is said to, and then no more of it for a while.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from pointsman.router.health import State
from pointsman.router.membership import Membership, Replica

MOST_CHANGES = 6  # of one replica within the time below
WITHIN_S = 60.0

_WORDS = {
    State.UNREACHABLE: "cannot be reached",
    State.NOT_READY: "is not ready",
    State.UNWELL: "is unwell",
    State.UP: "is ready",
}


class Notices:
    """To be told of a membership's changes of health; ``say`` gets a line. ``clock_s`` never goes
    back."""

    def __init__(
        self, membership: Membership, say: Callable[[str], None], clock_s: Callable[[], float]
    ) -> None:
        self._membership = membership
        self._say = say
        self._clock_s = clock_s
        self._said_s: dict[int, deque[float]] = {}  # when something was said of it, by number

    def changed(self, replica: Replica) -> None:
        """Its health has become another one."""
        if replica.is_draining or replica.is_removed:
            return
        now_s = self._clock_s()
        times = self._said_s.setdefault(replica.number, deque(maxlen=MOST_CHANGES))
        if len(times) == MOST_CHANGES and now_s - times[0] < WITHIN_S:
            return
        times.append(now_s)
        line = f"replica {replica.url} {self._words(replica)}"
        if len(times) == MOST_CHANGES and now_s - times[0] < WITHIN_S:
            line += "; it comes and goes: no more is said of it for a while, /health says how it is"
        self._say(line)

    def _words(self, replica: Replica) -> str:
        health = replica.health
        words = _WORDS[health.state]
        if health.state is State.UP:
            return words
        why = "" if health.last_failure is None else f": {health.last_failure.error}"
        alone = "" if self._membership.ready else "; no replica is ready"
        return f"{words}{why}{alone}"
