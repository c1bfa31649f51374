"""In which order held requests go, for the simulator and the live router alike.

The simulator compiles ``turn_ms``; the router calls it as it stands.
"""

from __future__ import annotations

from dataclasses import dataclass

FCFS, SHORTEST_PREFILL, EARLIEST_DEADLINE = range(3)
ORDERS = {
    "fcfs": FCFS,
    "shortest_prefill": SHORTEST_PREFILL,
    "earliest_deadline": EARLIEST_DEADLINE,
}

# A held request that is late already counts as arriving so many objectives later: moved to the
# back for good, it would starve.
LATE_OBJECTIVES = 4.0


@dataclass(frozen=True, slots=True)
class HoldRules:
    """Requests are held while the replica chosen for them has more than ``wait_ms`` to do.

    ``order``: one of ORDERS. A ms of waiting outweighs ``ageing`` ms of prefill in
    ``shortest_prefill``; ``ttft_ms`` is the objective that deadlines are made of.
    """

    wait_ms: float
    order: str = "fcfs"
    ageing: float = 1.0
    ttft_ms: float = 3000.0

    def turn_ms(self, work_ms: float, since_ms: float, now_ms: float) -> float:
        """Of the requests held for one replica the one with the least goes first."""
        return turn_ms(ORDERS[self.order], work_ms, since_ms, (self.ageing, self.ttft_ms), now_ms)


def turn_ms(
    order: int, work_ms: float, since_ms: float, weights: tuple[float, float], now_ms: float
) -> float:
    """Of the requests held for one replica the one with the least goes first.

    ``work_ms``: its prefill there. ``weights``: ms of prefill that a ms of waiting outweighs, and
    the objective that deadlines are made of.
    """
    ageing, ttft_ms = weights
    if order == SHORTEST_PREFILL:
        return work_ms + ageing * since_ms
    late = order == EARLIEST_DEADLINE and now_ms > since_ms + ttft_ms
    return since_ms + (LATE_OBJECTIVES * ttft_ms if late else 0.0)
