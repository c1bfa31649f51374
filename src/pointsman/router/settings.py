"""How patient the router is, and what it does when replicas fail: every limit and its default."""

from __future__ import annotations

from dataclasses import dataclass, field

from pointsman.core.checks import check_integer, check_number
from pointsman.core.errors import unknown_name
from pointsman.dispatch.hold_order import ORDERS, HoldRules

# Of the sweep that enforces all limits: it looks about four times within the shortest one.
LONGEST_SWEEP_S = 1.0
SHORTEST_SWEEP_S = 0.005


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a replica may be silent: until it is connected to, until the first byte of an
    answer, and between two reads of one. An answer that is no stream comes in one piece when all
    of it is generated, so the second is long: it is what OpenAI's own client waits.
    """

    connect_ms: float = 5_000.0
    first_byte_ms: float = 600_000.0
    idle_ms: float = 120_000.0

    def __post_init__(self) -> None:
        for name in ("connect_ms", "first_byte_ms", "idle_ms"):
            check_number("timeouts", name, getattr(self, name), above=0.0)


@dataclass(frozen=True, slots=True)
class Probing:
    """Each replica is asked for its health every ``interval_ms``; one that came back gets its
    whole share of requests ``slow_start_ms`` later."""

    interval_ms: float = 1_000.0
    slow_start_ms: float = 10_000.0
    answer_ms: float = 5_000.0
    misses: int = 2  # in a row, after which a replica that takes connections counts as unwell

    def __post_init__(self) -> None:
        check_number("probing", "interval_ms", self.interval_ms, above=0.0)
        check_number("probing", "slow_start_ms", self.slow_start_ms)
        check_number("probing", "answer_ms", self.answer_ms, above=0.0)
        check_integer("probing", "misses", self.misses, 1)


@dataclass(frozen=True, slots=True)
class SettingAside:
    """A replica that answered so many requests in a row with errors gets none for a while:
    ``first_ms`` for each time in succession, ``most_ms`` at most. ``answers``: 0 for never."""

    answers: int = 5
    first_ms: float = 30_000.0
    most_ms: float = 300_000.0

    def __post_init__(self) -> None:
        check_integer("setting aside", "answers", self.answers, 0)
        check_number("setting aside", "first_ms", self.first_ms)


@dataclass(frozen=True, slots=True)
class Holding:
    """At most how many requests, of how many bytes, wait in the router, and how long.

    ``wait_ms``: beyond how much there is to do on the replica chosen for it a request is held for
    that; None: it is sent at once. ``order``, ``ageing``, ``ttft_ms``: who goes first of those, as
    in ``HoldRules``. Raises InputError for a value outside its range.
    """

    requests: int = 1_000
    bytes: int = 64 << 20
    timeout_ms: float = 10_000.0
    wait_ms: float | None = None
    order: str = "fcfs"
    ageing: float = 1.0
    ttft_ms: float = 3_000.0

    def __post_init__(self) -> None:
        check_integer("holding", "requests", self.requests, 0)
        check_integer("holding", "bytes", self.bytes, 0, 1 << 40)
        if self.order not in ORDERS:
            raise unknown_name("holding", "order", self.order, ORDERS)
        for name in ("timeout_ms", "ageing", "ttft_ms"):
            check_number("holding", name, getattr(self, name))
        if self.wait_ms is not None:
            check_number("holding", "wait_ms", self.wait_ms)

    @property
    def rules(self) -> HoldRules | None:
        """By what a request is held for a replica; None: by nothing."""
        if self.wait_ms is None:
            return None
        return HoldRules(self.wait_ms, self.order, self.ageing, self.ttft_ms)


@dataclass(frozen=True, slots=True)
class Resilience:
    """What happens when replicas fail, are slow, or are full.

    ``retries``: on how many further replicas a request is tried whose answer has not begun. One: a
    replica that cannot be reached is left out at once, so that a second failure takes a second
    death at the same instant, and a request that kills engines kills two at most.
    ``max_in_flight``: of one replica; None for any number. ``drain_ms``: how long requests in
    flight may take to end once the router is told to stop.
    """

    timeouts: Timeouts = field(default_factory=Timeouts)
    probing: Probing = field(default_factory=Probing)
    holding: Holding = field(default_factory=Holding)
    setting_aside: SettingAside = field(default_factory=SettingAside)
    retries: int = 1
    max_in_flight: int | None = None
    drain_ms: float = 30_000.0

    def __post_init__(self) -> None:
        check_integer("resilience", "retries", self.retries, 0)
        if self.max_in_flight is not None:
            check_integer("resilience", "max_in_flight", self.max_in_flight, 1)
        check_number("resilience", "drain_ms", self.drain_ms)

    @property
    def sweep_s(self) -> float:
        """How often to look whether a limit has passed."""
        limits = self.timeouts
        shortest_ms = min(
            limits.connect_ms, limits.first_byte_ms, limits.idle_ms, self.holding.timeout_ms
        )
        return min(LONGEST_SWEEP_S, max(SHORTEST_SWEEP_S, shortest_ms / 4000.0))


DEFAULTS = Resilience()
