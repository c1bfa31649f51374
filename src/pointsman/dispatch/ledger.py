"""The router's own account of its replicas: what is in flight there, and whose home they are.

Counters change only with requests: a reservation is taken at the instant of the choice and freed
once, however the request ends. Nothing is learned from the replicas themselves.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from pointsman.workload.workload import Floats

NOWHERE = -1

MAX_SESSIONS = 1 << 16


class Ledger:
    """Requests in flight, their expected work in ms, and the home of each session.

    ``max_sessions`` bounds the memory of homes: the session that was quiet longest is forgotten.
    """

    def __init__(self, replicas: int, max_sessions: int = MAX_SESSIONS) -> None:
        self.requests: Floats = np.zeros(replicas, dtype=np.float64)
        self.outstanding_ms: Floats = np.zeros(replicas, dtype=np.float64)
        self.max_sessions = max_sessions
        self._homes: OrderedDict[str, int] = OrderedDict()

    def reserve(self, replica: int, work_ms: float) -> Reservation:
        """Count a request of that expected work on the replica until the reservation is freed."""
        self.requests[replica] += 1.0
        self.outstanding_ms[replica] += work_ms
        return Reservation(self, replica, work_ms)

    def home(self, session: str | None) -> int:
        """The replica that the session's last request was sent to, or NOWHERE."""
        return NOWHERE if session is None else self._homes.get(session, NOWHERE)

    def settle(self, session: str | None, replica: int) -> None:
        """Make the replica the session's home."""
        if session is None:
            return
        self._homes[session] = replica
        self._homes.move_to_end(session)
        if len(self._homes) > self.max_sessions:
            self._homes.popitem(last=False)

    @property
    def in_flight(self) -> int:
        """Requests in flight on all replicas."""
        return int(self.requests.sum())

    def check_invariants(self) -> None:
        """Nothing is negative, and a replica without requests owes no work."""
        assert (self.requests >= 0).all()
        assert (self.outstanding_ms >= 0).all()
        assert (self.outstanding_ms[self.requests == 0] == 0).all()
        assert len(self._homes) <= self.max_sessions

    def _free(self, replica: int, work_ms: float) -> None:
        self.requests[replica] -= 1.0
        # Sums of doubles leave crumbs; an idle replica owes exactly nothing.
        left_ms = self.outstanding_ms[replica] - work_ms
        self.outstanding_ms[replica] = max(0.0, left_ms) if self.requests[replica] else 0.0


class Reservation:
    """One request's place in the ledger."""

    __slots__ = ("_ledger", "replica", "work_ms")

    def __init__(self, ledger: Ledger, replica: int, work_ms: float) -> None:
        self._ledger: Ledger | None = ledger
        self.replica = replica
        self.work_ms = work_ms

    def free(self) -> bool:
        """Give the place back; whether this was the first call. Further calls do nothing."""
        ledger, self._ledger = self._ledger, None
        if ledger is None:
            return False
        ledger._free(self.replica, self.work_ms)
        return True
