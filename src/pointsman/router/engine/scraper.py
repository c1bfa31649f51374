"""Asks every replica for its metrics now and then, beside the requests and never in their way.

What it learns is optional and may be old: a page that is slow or gone makes the last reading
older, and nothing else. An old reading is stale, not a sign that the replica is dead.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from pointsman.core.errors import InputError, wrong_value
from pointsman.router.engine.fetch import Limits, PageError, fetch
from pointsman.router.engine.reading import EngineReading, reading_of
from pointsman.router.engine.slots import kv_use_of_slots
from pointsman.router.upstream import ReplicaAddress, replica_address

METRICS = "/metrics"
SLOTS = "/slots"
MIN_INTERVAL_S = 1.0
# Readings from more intervals ago than this are stale.
STALE_INTERVALS = 3
# An interval is longer by a random part up to this, so that replicas are not asked all at once.
JITTER = 0.1

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ScrapeSettings:
    """How often and how patiently. Raises InputError for an interval below 1 s.

    Engines that are asked more often have been made unresponsive by that alone (source:
    llm-d/llm-d-router#1842).
    """

    interval_s: float = 5.0
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not self.interval_s >= MIN_INTERVAL_S:
            raise wrong_value("scraping", "interval_s", self.interval_s, "a number >= 1")

    @property
    def stale_after_ms(self) -> float:
        """The age from which on a reading is stale."""
        return STALE_INTERVALS * self.interval_s * 1000.0


@dataclass(frozen=True, slots=True)
class Reading:
    """What an engine said, when it was asked for it, and from which age on that is stale."""

    engine: EngineReading
    at_ms: float
    stale_after_ms: float

    def age_ms(self, now_ms: float) -> float:
        """How long ago the engine was asked."""
        return now_ms - self.at_ms

    def is_stale(self, now_ms: float) -> bool:
        """Whether it is too old to go by. Says nothing about the replica's health."""
        return self.age_ms(now_ms) > self.stale_after_ms


@dataclass(frozen=True, slots=True)
class Attempts:
    """How asking one replica went so far."""

    answers: int = 0
    failures: int = 0
    last_error: str | None = None  # of the last failure, also where answers came since


class Readings:
    """The last reading of every replica."""

    def __init__(self) -> None:
        self._readings: dict[int, Reading] = {}
        self._attempts: dict[int, Attempts] = {}

    def of(self, replica: int) -> Reading | None:
        """The last reading, however old; None before the first."""
        return self._readings.get(replica)

    def attempts(self, replica: int) -> Attempts:
        """How asking this replica went."""
        return self._attempts.get(replica, Attempts())

    def keep(self, replica: int, reading: Reading) -> None:
        """Note an answer."""
        before = self.attempts(replica)
        self._readings[replica] = reading
        self._attempts[replica] = replace(before, answers=before.answers + 1)

    def note_failure(self, replica: int, error: str) -> None:
        """Note that there was no answer; the last reading stays."""
        before = self.attempts(replica)
        self._attempts[replica] = replace(before, failures=before.failures + 1, last_error=error)

    def forget(self, replica: int) -> None:
        """Drop what is known of a replica."""
        self._readings.pop(replica, None)
        self._attempts.pop(replica, None)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a Scraper takes from outside: the router's clock, its ear, chance, and waiting.

    ``complain`` is told where ``on_reading`` fails; that replica is asked no more.
    """

    clock_ms: Callable[[], float]
    complain: Callable[[str], None]
    draw: Callable[[], float] = random.random
    sleep: Sleep = asyncio.sleep


OnReading = Callable[[int, Reading], None]


@dataclass(frozen=True, slots=True)
class EnginePages:
    """Where an engine is asked: its own address, and its page of metrics if that is elsewhere."""

    address: ReplicaAddress
    metrics: ReplicaAddress | None = None

    @property
    def metrics_page(self) -> tuple[ReplicaAddress, str]:
        """Whom to ask for the gauges, and below which path."""
        return (self.address, METRICS) if self.metrics is None else (self.metrics, "")

    @property
    def metrics_url(self) -> str:
        """The same as one text."""
        address, path = self.metrics_page
        return f"{address.url}{path}"


def page_address(url: str, where: str) -> ReplicaAddress:
    """Read ``http://HOST[:PORT][/PATH]`` of a page of metrics, ``/metrics`` unless it has a path.

    Raises InputError for anything else.
    """
    address = replica_address(url, where)
    return address if address.base else replica_address(f"{address.url}{METRICS}", where)


class Scraper:
    """A task for every watched replica; ``on_reading`` is called with each new reading."""

    def __init__(
        self,
        settings: ScrapeSettings,
        surroundings: Surroundings,
        on_reading: OnReading | None = None,
    ) -> None:
        self.readings = Readings()
        self._settings = settings
        self._surroundings = surroundings
        self._on_reading = on_reading
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def watch(
        self, replica: int, address: ReplicaAddress, metrics: ReplicaAddress | None = None
    ) -> None:
        """Ask this replica from now on; to be called on the event loop. ``metrics``: the page, if
        it is not the replica's own."""
        assert replica not in self._tasks, "watched already"
        pages = EnginePages(address, metrics)
        task = asyncio.get_running_loop().create_task(self._watch(replica, pages))
        task.add_done_callback(self._ended)
        self._tasks[replica] = task

    def unwatch(self, replica: int) -> None:
        """Ask it no more, and forget what it said."""
        task = self._tasks.pop(replica, None)
        if task is not None:
            task.cancel()
        self.readings.forget(replica)

    async def close(self) -> None:
        """Ask nobody any more."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._surroundings.complain(f"metrics: no longer asked for: {task.exception()!r}")

    async def _watch(self, replica: int, pages: EnginePages) -> None:
        interval_s = self._settings.interval_s
        around = self._surroundings
        await around.sleep(MIN_INTERVAL_S * around.draw())
        while True:
            await self._ask(replica, pages)
            await around.sleep(interval_s * (1.0 + JITTER * around.draw()))

    async def _ask(self, replica: int, pages: EnginePages) -> None:
        asked_ms = self._surroundings.clock_ms()
        try:
            engine = await read_engine(pages, self._settings.limits)
        except (PageError, InputError) as error:
            self.readings.note_failure(replica, str(error))
            return
        reading = Reading(engine, asked_ms, self._settings.stale_after_ms)
        self.readings.keep(replica, reading)
        if self._on_reading is not None:
            self._on_reading(replica, reading)


async def read_engine(pages: EnginePages, limits: Limits) -> EngineReading:
    """What a replica says now. Raises PageError or InputError where its metrics cannot be read."""
    page = await fetch(*pages.metrics_page, limits)
    where = pages.metrics_url
    if page.status != 200:
        raise PageError(f"{where}: status {page.status}")
    try:
        reading = reading_of(page.body.decode())
    except (InputError, UnicodeDecodeError) as error:
        raise InputError(f"{where}: {error}") from None
    if reading.engine == "llama.cpp" and reading.kv_use is None:
        return replace(reading, kv_use=await _kv_use(pages.address, limits))
    return reading


async def _kv_use(address: ReplicaAddress, limits: Limits) -> float | None:
    """What llama.cpp's slots hold; None where it does not show them."""
    try:
        page = await fetch(address, SLOTS, limits)
        return kv_use_of_slots(page.body) if page.status == 200 else None
    except (PageError, InputError):
        return None
