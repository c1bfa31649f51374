"""Who is held for which replica, whose turn it is, and when to look at them again."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection
from typing import Generic, TypeVar

from pointsman.dispatch.dispatcher import Dispatcher
from pointsman.dispatch.hold_order import HoldRules
from pointsman.dispatch.question import Hold, Wait

W = TypeVar("W")

# Timers are not exact: a wait that is just above its limit is looked at again after this.
SHORTEST_DELAY_MS = 1.0

CallLater = Callable[[float, Callable[[], None]], asyncio.TimerHandle]


def call_later(delay_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
    """On the running event loop."""
    return asyncio.get_running_loop().call_later(delay_s, callback)


class HeldRequests(Generic[W]):
    """Requests by the replica that they are held for. ``later`` calls back after some seconds."""

    def __init__(
        self, rules: HoldRules, dispatcher: Dispatcher, later: CallLater = call_later
    ) -> None:
        self.rules = rules
        self._dispatcher = dispatcher
        self._later = later
        # By replica: how long each has waited and for what, and its number.
        self._held: dict[int, dict[W, tuple[float, Hold, int]]] = {}  # none of them empty
        self._timers: dict[int, asyncio.TimerHandle] = {}
        if rules.wait_ms < math.inf:
            dispatcher.ledger.expected_wait(0, 1, 0.0, 0.0)  # compiled now: no request waits for it

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def holds_for(self, replica: int) -> bool:
        """Whether somebody is held for it."""
        return replica in self._held

    @property
    def replicas(self) -> list[int]:
        """Those that somebody is held for."""
        return list(self._held)

    @property
    def everyone(self) -> list[W]:
        """All that are held."""
        return [waiter for held in self._held.values() for waiter in held]

    def add(self, waiter: W, wait: Wait, number: int) -> None:
        """It is held; of two that came at the same time the lower ``number`` goes first."""
        assert wait.hold is not None, "held for nothing"
        assert wait.since_ms is not None, "held since never"
        held = self._held.setdefault(wait.hold.replica, {})
        held[waiter] = wait.since_ms, wait.hold, number

    def remove(self, waiter: W, replica: int) -> bool:
        """It is held for the replica no more; whether it was."""
        held = self._held.get(replica, {})
        if held.pop(waiter, None) is None:
            return False
        if not held:
            del self._held[replica]
            self._cancel(replica)
        return True

    def first(self, replica: int, tried: Collection[W] = ()) -> tuple[W, Hold] | None:
        """Whose turn it is of those held for the replica, but for those that were tried."""
        now_ms = self._dispatcher.clock_ms()
        turns = (
            (self.rules.turn_ms(hold.needs.work_ms, since_ms, now_ms), number, waiter, hold)
            for waiter, (since_ms, hold, number) in self._held.get(replica, {}).items()
            if waiter not in tried
        )
        first = min(turns, key=lambda turn: turn[:2], default=None)
        return None if first is None else first[2:]

    def has_little_to_do(self, replica: int, prompt_tokens: int) -> bool:
        """Whether the replica may have such a prompt; with 0, whether it may have any."""
        return self._expected_wait(replica, prompt_tokens)[0] <= self.rules.wait_ms

    def watch(self, replica: int, prompt_tokens: int, look: Callable[[int], None]) -> None:
        """Call back when the replica will have little to do for such a prompt that is held for it,
        if it is only a matter of time."""
        self._cancel(replica)
        falls_ms = self._expected_wait(replica, prompt_tokens)[1]
        if falls_ms < math.inf and self.holds_for(replica):
            delay_ms = max(SHORTEST_DELAY_MS, falls_ms - self._dispatcher.clock_ms())
            self._timers[replica] = self._later(delay_ms / 1000.0, lambda: look(replica))

    def _expected_wait(self, replica: int, prompt_tokens: int) -> tuple[float, float]:
        ledger, now_ms = self._dispatcher.ledger, self._dispatcher.clock_ms()
        return ledger.expected_wait(replica, prompt_tokens, now_ms, self.rules.wait_ms)

    def _cancel(self, replica: int) -> None:
        timer = self._timers.pop(replica, None)
        if timer is not None:
            timer.cancel()
