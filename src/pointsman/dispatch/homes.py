"""Where each session's last request went."""

from __future__ import annotations

from collections import OrderedDict

NOWHERE = -1

MAX_SESSIONS = 1 << 16


class Homes:
    """The home of each session, of at most ``max_sessions``: the one quiet longest is forgotten."""

    def __init__(self, max_sessions: int = MAX_SESSIONS) -> None:
        self.max_sessions = max_sessions
        self._homes: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._homes)

    def of(self, session: str | None) -> int:
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
