"""What is common to all client connections: how many, how large, how slow, and who may ask.

One timer looks at every connection about once a second; none has a timer of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Protocol

from pointsman.core.checks import check_integer, check_number
from pointsman.router.answers import Answer, error_body, failure, refusal
from pointsman.router.api_keys import ApiKeys
from pointsman.router.messages import MAX_HEAD_BYTES
from pointsman.router.outbox import Outbox

SWEEP_S = 1.0

Complain = Callable[[str], None]

TOO_MANY = failure(503, "the router has no room for another connection", "too_many_connections")
NO_KEY = Answer(
    401,
    error_body(
        "expected a key of this router, as in Authorization: Bearer KEY",
        "invalid_request_error",
        "invalid_api_key",
    ),
    ((b"www-authenticate", b"Bearer"),),
)


@dataclass(frozen=True, slots=True)
class EdgeLimits:
    """What a client may send, and how long it may take. Raises InputError for no such limit.

    ``head_timeout_s``: from a head's first byte to its last. ``body_timeout_s``: without a byte of
    a body. ``idle_timeout_s``: without a request. ``write_timeout_s``: without taking a byte of an
    answer. The two long ones are nginx's defaults (source: its documentation,
    ``keepalive_timeout`` and ``send_timeout``).
    """

    max_connections: int = 4096
    max_headers: int = 100
    max_head_bytes: int = MAX_HEAD_BYTES
    max_body_bytes: int = 64 << 20
    head_timeout_s: float = 10.0
    body_timeout_s: float = 30.0
    idle_timeout_s: float = 75.0
    write_timeout_s: float = 60.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.startswith("max_"):
                check_integer("limits", field.name, value, least=1)
            else:
                check_number("limits", field.name, value, above=0.0)

    @property
    def sweep_s(self) -> float:
        """How often connections are looked at: no limit is missed by more than a quarter."""
        shortest_s = min(
            self.head_timeout_s, self.body_timeout_s, self.idle_timeout_s, self.write_timeout_s
        )
        return min(SWEEP_S, shortest_s / 4)


class Connection(Protocol):
    """A connection, as the edge sees it."""

    def check_deadline(self, now_s: float) -> None:
        """Give up a client that is too slow."""

    def close_when_idle(self) -> None:
        """Serve what is being served, then close."""

    def abort(self) -> None:
        """Close at once."""


class Edge:
    """The open connections of a router, what is asked of them, and the timer."""

    def __init__(
        self,
        limits: EdgeLimits,
        keys: ApiKeys | None,
        complain: Complain,
        outbox: Outbox | None = None,
    ) -> None:
        self.limits = limits
        self.outbox = outbox or Outbox()
        self.complain = complain
        self.connections: set[Connection] = set()
        self._keys = keys
        self._timer: asyncio.TimerHandle | None = None
        most = limits.max_body_bytes
        self.body_too_large = refusal(413, f"the body is over {most} bytes", "body_too_large")
        most = limits.max_head_bytes
        self.head_too_large = refusal(431, f"the head is over {most} bytes", "head_too_large")
        most = limits.max_headers
        self.too_many_headers = refusal(431, f"there are over {most} headers", "head_too_large")

    @property
    def is_full(self) -> bool:
        """Whether another connection would be one too many."""
        return len(self.connections) >= self.limits.max_connections

    @property
    def has_keys(self) -> bool:
        """Whether clients have to show a key."""
        return self._keys is not None

    @property
    def drops_authorization(self) -> bool:
        """Whether a client's key is for this router, and none of a replica's business."""
        return self._keys is not None and not self._keys.forwarded

    def refusal_of(self, authorization: bytes | None) -> Answer | None:
        """Who has no key is turned away; None where there are no keys, or this is one."""
        if self._keys is None or self._keys.accept(authorization):
            return None
        return NO_KEY

    def start(self) -> None:
        """Begin to look at connections, and at the file of keys."""
        self._timer = asyncio.get_running_loop().call_later(self.limits.sweep_s, self._sweep)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def reload_keys(self) -> None:
        """Read the file of keys again."""
        if self._keys is not None:
            self._keys.reload(self.complain)

    def _sweep(self) -> None:
        now_s = asyncio.get_running_loop().time()
        for connection in list(self.connections):
            connection.check_deadline(now_s)
        if self._keys is not None:
            self._keys.reload_if_changed(self.complain)
        self.start()
