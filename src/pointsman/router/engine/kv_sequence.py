"""What the number of a message says about the messages before it."""

from __future__ import annotations

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


class SilenceAlarm:
    """Raised for a replica that computes tokens for a while and publishes nothing.

    Blocks fill as tokens flow, so a publisher that is set up wrongly on either side is noticed by
    its silence alone.
    """

    def __init__(self, after_ms: float) -> None:
        self._after_ms = after_ms
        self._flowing_since_ms: dict[int, float] = {}  # since the last event
        self.silent: set[int] = set()

    def heard(self, replica: int) -> None:
        """An event came."""
        self._flowing_since_ms.pop(replica, None)
        self.silent.discard(replica)

    def computed(self, replica: int, now_ms: float) -> bool:
        """Tokens were computed there; whether that raises the alarm now."""
        since_ms = self._flowing_since_ms.setdefault(replica, now_ms)
        if replica in self.silent or now_ms - since_ms < self._after_ms:
            return False
        self.silent.add(replica)
        return True
