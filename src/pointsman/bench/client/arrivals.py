"""When requests are due: on an absolute schedule, or as those before them end.

    open loop     request i is due at its arrival_ms, from the first one's on; nothing shifts it
    closed loop   as many users as ``concurrency``; each takes the next conversation (a session's
                  requests in order, or one request without a session) and sends its next request
                  ``think_ms`` after the answer before it, in whatever way that ended

Without sessions the closed loop is the simulator's (docs/simulator.md, Loads).
Relative sleeps would add up what each of them is late (sgl-project/sglang
``python/sglang/bench_serving.py``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from pointsman.core.errors import wrong_value
from pointsman.workload.workload import MISSING, Workload

Due = tuple[float, int]  # ms since the start, the request's row in the workload


class Schedule(Protocol):
    """Which requests are due when."""

    def first(self) -> list[Due]:
        """Those that wait for no other, in order of time."""

    def after(self, number: int, end_ms: float) -> Due | None:
        """The one that waited for this request, which has ended."""


class Loop(Protocol):
    """How a workload is offered."""

    def schedule(self, workload: Workload) -> Schedule:
        """The schedule of its requests."""

    @property
    def most_in_flight(self) -> float:
        """How many may be in flight; what is due beyond that waits in the client."""

    def requested_rps(self, workload: Workload) -> float | None:
        """The rate that it asks for; None where it asks for none."""


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """At the workload's own instants; ``cap`` requests in flight at most, None for no limit."""

    cap: int | None = None

    def __post_init__(self) -> None:
        if self.cap is not None and self.cap < 1:
            raise wrong_value("open loop", "cap", self.cap, "an integer >= 1, or none")

    @property
    def most_in_flight(self) -> float:
        """The cap."""
        return math.inf if self.cap is None else self.cap

    def schedule(self, workload: Workload) -> Schedule:
        """All of them at once."""
        return _Fixed(workload)

    def requested_rps(self, workload: Workload) -> float | None:
        """Gaps a second; None where the workload has no length."""
        return (len(workload) - 1) * 1000.0 / workload.span_ms if workload.span_ms > 0.0 else None


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """So many users, each with one request in flight at most."""

    concurrency: int
    think_ms: float = 0.0

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise wrong_value("closed loop", "concurrency", self.concurrency, "an integer >= 1")
        if not 0.0 <= self.think_ms < math.inf:
            raise wrong_value("closed loop", "think_ms", self.think_ms, "a finite number >= 0")

    @property
    def most_in_flight(self) -> float:
        """The users."""
        return self.concurrency

    def schedule(self, workload: Workload) -> Schedule:
        """The first request of as many conversations as there are users."""
        return _Users(workload, self)

    def requested_rps(self, workload: Workload) -> float | None:
        """None: the answers set the pace."""
        return None


class _Fixed:
    def __init__(self, workload: Workload) -> None:
        self._arrival_ms = (workload.arrival_ms - workload.arrival_ms[:1]).tolist()

    def first(self) -> list[Due]:
        return list(zip(self._arrival_ms, range(len(self._arrival_ms)), strict=True))

    def after(self, number: int, end_ms: float) -> Due | None:
        return None


class _Users:
    def __init__(self, workload: Workload, loop: ClosedLoop) -> None:
        self._loop = loop
        self._conversations = iter(_conversations(workload))
        self._rest: dict[int, Iterator[int]] = {}  # of the conversation, by the request in flight

    def first(self) -> list[Due]:
        begun = (self._begin(0.0) for _ in range(self._loop.concurrency))
        return [due for due in begun if due is not None]

    def after(self, number: int, end_ms: float) -> Due | None:
        rest = self._rest.pop(number)
        at_ms = end_ms + self._loop.think_ms
        follower = next(rest, None)
        if follower is None:
            return self._begin(at_ms)
        self._rest[follower] = rest
        return at_ms, follower

    def _begin(self, at_ms: float) -> Due | None:
        conversation = next(self._conversations, None)
        if conversation is None:
            return None
        rest = iter(conversation)
        number = next(rest)
        self._rest[number] = rest
        return at_ms, number


def _conversations(workload: Workload) -> list[list[int]]:
    """Rows by session, in order of each one's first arrival."""
    found: list[list[int]] = []
    by_session: dict[int, list[int]] = {}
    for number, session in enumerate(workload.session.tolist()):
        if session == MISSING or session not in by_session:
            found.append([number])
            by_session[session] = found[-1]
        else:
            by_session[session].append(number)
    return found
