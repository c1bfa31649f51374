"""Where each session's last request went, for a while."""

from __future__ import annotations

from collections import OrderedDict

from pointsman.core.checks import check_number

NOWHERE = -1

MAX_SESSIONS = 1 << 16
DEFAULT_TTL_MS = 3_600_000.0  # an hour of others' requests leaves little of a session in a cache


class Homes:
    """The home of each session, until ``ttl_ms`` after its last request.

    Of at most ``max_sessions``: the one quiet longest is forgotten. Raises InputError for a time
    that is none. Times that are handed over never go back.
    """

    def __init__(self, max_sessions: int = MAX_SESSIONS, ttl_ms: float = DEFAULT_TTL_MS) -> None:
        check_number("sessions", "ttl_ms", ttl_ms, above=0.0)
        self.max_sessions = max_sessions
        self.ttl_ms = ttl_ms
        self._homes: OrderedDict[str, tuple[int, float]] = OrderedDict()  # quiet longest first

    def __len__(self) -> int:
        return len(self._homes)

    def of(self, session: str | None, now_ms: float) -> int:
        """The replica that the session's last request was sent to, or NOWHERE."""
        if session is None:
            return NOWHERE
        home, since_ms = self._homes.get(session, (NOWHERE, now_ms))
        return home if now_ms - since_ms <= self.ttl_ms else NOWHERE

    def settle(self, session: str | None, replica: int, now_ms: float) -> None:
        """Make the replica the session's home; those whose time is up are dropped."""
        if session is None:
            return
        self._homes[session] = replica, now_ms
        self._homes.move_to_end(session)
        while len(self._homes) > self.max_sessions or self._is_over(now_ms):
            self._homes.popitem(last=False)

    def _is_over(self, now_ms: float) -> bool:
        _, since_ms = next(iter(self._homes.values()))
        return now_ms - since_ms > self.ttl_ms
