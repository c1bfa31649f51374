"""A request that wants a place on a replica, and the refusal where it gets none."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from pointsman.core.errors import PointsmanError
from pointsman.dispatch.question import NO_WAIT, Question, Wait
from pointsman.router.membership import Membership
from pointsman.router.settings import Resilience

if TYPE_CHECKING:
    from pointsman.router.admission import Place

_MOST_NAMED = 3  # replicas in a message
_NEXT_STEP = "start one of them and ask again (/health says how each is)"


class RefusedError(PointsmanError):
    """There is no place, and no more waiting for one."""

    def __init__(self, message: str, http_status: int, code: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.http_status = http_status
        self.code = code
        self.retry_after_s = retry_after_s


class Asked(msgspec.Struct, eq=False):
    """A request that wants a place: ``tried`` are the replicas that it is not to get again,
    ``outside`` those that it may not have at all.

    ``draw``: by which it is one of those that a replica of less weight may get, or is not, however
    often it is asked about.
    """

    question: Question
    size_bytes: int
    tried: set[int] = set()
    outside: frozenset[int] = frozenset()
    draw: float | None = None  # None: it has not been asked about
    held_until_s: float | None = None  # None: it has never waited
    turn: int = 0  # the lower goes first, once it has waited
    wait: Wait = NO_WAIT  # the one that goes on


@dataclass(slots=True, eq=False)
class Waiting:
    """One that waits: in the line of its model, or held for a replica."""

    asked: Asked
    place: asyncio.Future[Place]
    replica: int | None = None  # the one that it is held for


class Refusals:
    """Why there is no place. ``most``: of requests in flight on one replica."""

    def __init__(self, membership: Membership, resilience: Resilience) -> None:
        self._membership = membership
        self._most = resilience.max_in_flight
        self._next_probe_s = math.ceil(resilience.probing.interval_ms / 1000.0)

    def of(self, asked: Asked, how: str, ready: list[int]) -> RefusedError:
        """``ready``: the replicas that are, and serve its model. ``how``: what it waited for."""
        if not asked.outside.issuperset(ready):
            message = f"all replicas have {self._most} requests in flight, {how}"
            return RefusedError(message, 429, "overloaded", 1)
        if ready:
            message = f"none of the replicas that the request may go to is ready, {how}"
            return RefusedError(message, 503, "no_replica_ready", self._next_probe_s)
        if self._membership.ready:
            model = asked.question.model
            message = f"no replica that serves the model `{model}` is ready, {how}"
            return RefusedError(message, 503, "model_unavailable", self._next_probe_s)
        message = f"no replica is ready, {how}{self._failures()}; {_NEXT_STEP}"
        return RefusedError(message, 503, "no_replica_ready", self._next_probe_s)

    def _failures(self) -> str:
        """Of some replicas the last one each, and of how many more there is one."""
        failures = [
            f"; {member.url}: {failure.error}"
            for member in self._membership.members
            if (failure := member.health.last_failure) is not None
        ]
        more = len(failures) - _MOST_NAMED
        return "".join(failures[:_MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")
