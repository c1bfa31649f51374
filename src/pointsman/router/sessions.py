"""How requests of one session are told, and for how long it keeps its replica."""

from __future__ import annotations

from dataclasses import dataclass

from pointsman.dispatch.homes import DEFAULT_TTL_MS
from pointsman.router.prompt import DEFAULT_SESSION_HEADER


@dataclass(frozen=True, slots=True)
class Sessions:
    """As QuestionReader and Homes take them."""

    header: str = DEFAULT_SESSION_HEADER
    from_user: bool = False
    ttl_ms: float = DEFAULT_TTL_MS
