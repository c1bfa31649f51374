"""What surrounds a fleet that batches: old signals, holding, a closed loop, replicas that fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pointsman.core.checks import check_integer, check_number
from pointsman.core.errors import InputError, unknown_name
from pointsman.dispatch.hold_order import ORDERS
from pointsman.sim.knowledge import Signals
from pointsman.sim.membership import DIES, JOINS, SLOWS
from pointsman.sim.routers import ONE_ROUTER, Routers

EVENTS = {"dies": DIES, "slows": SLOWS, "joins": JOINS}

# vLLM's router and sglang's try elsewhere before the first byte; one further try.
MOST_TRIES = 2


@dataclass(frozen=True, slots=True)
class Holding:
    """Requests are held in the router while the replica chosen for them has more than ``wait_ms``
    of prefill waiting; at most ``most_held``, beyond which they are sent at once.

    ``order``: who goes first, ``fcfs``, ``shortest_prefill`` (a ms of waiting outweighs ``ageing``
    ms of prefill) or ``earliest_deadline`` (arrival + ``ttft_ms``; one that is late counts as
    arriving four objectives later). Raises InputError for a value outside its range.
    """

    wait_ms: float
    order: str = "fcfs"
    most_held: int = 1024
    ageing: float = 1.0
    ttft_ms: float = 3000.0

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise unknown_name("holding", "order", self.order, ORDERS)
        for name in ("wait_ms", "ageing", "ttft_ms"):
            check_number("holding", name, getattr(self, name))
        check_integer("holding", "most_held", self.most_held, 1, 1 << 20)


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """``concurrency`` requests are in flight at any time; each that ends lets the next one of the
    workload come ``think_ms`` later. The arrival times of the workload are not used."""

    concurrency: int
    think_ms: float = 0.0

    def __post_init__(self) -> None:
        check_integer("closed loop", "concurrency", self.concurrency, 1)
        check_number("closed loop", "think_ms", self.think_ms)


@dataclass(frozen=True, slots=True)
class Change:
    """At ``time_ms`` the replica ``dies``, ``slows`` (its iterations take ``factor`` times what
    they took nominally) or ``joins``, with an empty cache; it is absent until then."""

    time_ms: float
    replica: int
    event: str
    factor: float = 1.0

    def __post_init__(self) -> None:
        if self.event not in EVENTS:
            raise unknown_name("change of a replica", "event", self.event, EVENTS)
        check_number("change of a replica", "time_ms", self.time_ms)
        check_integer("change of a replica", "replica", self.replica, 0)
        check_number("change of a replica", "factor", self.factor, above=0.0)


@dataclass(frozen=True, slots=True)
class Conditions:
    """The defaults: current signals, an open loop, nothing held, nobody fails, one router.

    Raises InputError where several routers are to hold requests.
    """

    signals: Signals = field(default_factory=Signals)
    holding: Holding | None = None
    closed_loop: ClosedLoop | None = None
    changes: Sequence[Change] = ()
    most_tries: int = MOST_TRIES
    routers: Routers = ONE_ROUTER

    def __post_init__(self) -> None:
        check_integer("conditions", "most_tries", self.most_tries, 1)
        if self.holding is not None and self.routers.count > 1:
            raise InputError(
                f"holding: {self.routers.count} routers are to hold requests; expected one router,"
                " or nothing held, for what several hold is not simulated"
            )


NOTHING_SPECIAL = Conditions()
