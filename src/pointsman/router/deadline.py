"""How long a client may take for what it is doing, seen by looking now and then."""

from __future__ import annotations

import math
from enum import Enum

from pointsman.router.edge import EdgeLimits

LINGER_S = 2.0


class Phase(Enum):
    """What a connection waits for."""

    REPLICA = "the answer"
    WRITE = "the client to take bytes"
    HEAD = "the rest of a head"
    BODY = "more of a body"
    IDLE = "a request"
    LINGER = "the client to close"


def limit_s(phase: Phase, limits: EdgeLimits) -> float:
    """How long without progress is allowed."""
    return {
        Phase.REPLICA: math.inf,
        Phase.WRITE: limits.write_timeout_s,
        Phase.HEAD: limits.head_timeout_s,
        Phase.BODY: limits.body_timeout_s,
        Phase.IDLE: limits.idle_timeout_s,
        Phase.LINGER: LINGER_S,
    }[phase]


class Deadline:
    """Since when a connection has made no progress."""

    def __init__(self, limits: EdgeLimits) -> None:
        self._limits = limits
        self._seen: tuple[Phase, int] | None = None
        self._since_s = 0.0

    def is_over(self, phase: Phase, progress: int, now_s: float) -> bool:
        """Whether it has been at the same point for too long; then the time runs anew."""
        if (phase, progress) != self._seen:
            self._seen, self._since_s = (phase, progress), now_s
            return False
        is_over = now_s - self._since_s >= limit_s(phase, self._limits)
        if is_over:
            self._since_s = now_s
        return is_over
