"""What the number of a message says about the messages before it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class Order(Enum):
    """How a message stands to those before it."""

    FIRST = auto()  # the first one that we hear; there may have been others
    NEXT = auto()
    AFTER_A_GAP = auto()
    RESTARTED = auto()  # the publisher counts from its start: its engine is another one


class Sequence:
    """Follows the numbers of one publisher, which counts from 0 in steps of 1."""

    def __init__(self) -> None:
        self.expected: int | None = None

    def order_of(self, number: int) -> Order:
        """How this message stands to those before; ``passed`` says that it was dealt with."""
        if self.expected is None:
            return Order.FIRST
        if number == self.expected:
            return Order.NEXT
        return Order.AFTER_A_GAP if number > self.expected else Order.RESTARTED

    def passed(self, number: int) -> None:
        """Expect what follows this number."""
        self.expected = number + 1


# A request that computes fewer tokens may fill no block: those of vLLM hold 16 by default, 128 on
# a CPU, and may be larger; SGLang's pages hold 1 and more.
FILLING_TOKENS = 512


class SilenceAlarm:
    """Raised for a replica that computes tokens for a while and publishes nothing.

    Blocks fill as tokens flow, so a publisher that is set up wrongly on either side is noticed by
    its silence alone.
    """

    def __init__(self, after_ms: float) -> None:
        self._after_ms = after_ms
        self._flows: dict[int, _Flow] = {}  # since the last event
        self.silent: set[int] = set()

    def heard(self, replica: int) -> None:
        """An event came."""
        self._flows.pop(replica, None)
        self.silent.discard(replica)

    def computed(self, replica: int, tokens: int, now_ms: float) -> bool:
        """A request computed so many tokens there; whether that raises the alarm now."""
        if tokens < FILLING_TOKENS:
            return False
        flow = self._flows.get(replica)
        if flow is None or now_ms - flow.last_ms > self._after_ms:  # else it was no flow
            flow = self._flows[replica] = _Flow(now_ms, now_ms)
        flow.last_ms = now_ms
        if replica in self.silent or now_ms - flow.since_ms < self._after_ms:
            return False
        self.silent.add(replica)
        return True


@dataclass(slots=True)
class _Flow:
    since_ms: float
    last_ms: float
