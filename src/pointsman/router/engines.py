"""What the engines say: asked now and then or followed, and told to the dispatcher."""

from __future__ import annotations

import math

from pointsman.dispatch.dispatcher import Dispatcher
from pointsman.router.edge import Complain
from pointsman.router.engine.scraper import (
    Reading,
    Scraper,
    ScrapeSettings,
    Surroundings,
)
from pointsman.router.kv_following import KvFollowing
from pointsman.router.membership import Replica
from pointsman.router.prometheus.page import ReplicaState

_UNKNOWN = (math.nan, math.nan, math.nan)


class Engines:
    """Readings of every replica's engine; ``scrape`` None: nobody is asked. ``following``: their
    events.

    A reading corrects the router's own accounts until it is stale, and is then unknown: the replica
    is routed to as before, by what was sent there.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        scrape: ScrapeSettings | None,
        complain: Complain,
        following: KvFollowing | None = None,
    ) -> None:
        self._dispatcher = dispatcher
        self._following = following
        self._heard: set[int] = set()
        self._scraper: Scraper | None = None
        if scrape is not None:
            around = Surroundings(dispatcher.clock_ms, complain)
            self._scraper = Scraper(scrape, around, self._hear)

    def start(self) -> None:
        """Follow events. Raises MachineError where an endpoint cannot be had."""
        if self._following is not None:
            self._following.start()

    def watch(self, replica: Replica) -> None:
        """Ask this replica's engine from now on."""
        if self._scraper is not None:
            address, metrics = replica.pool.address, replica.options.metrics
            self._scraper.watch(replica.number, address, metrics)

    def unwatch(self, replica: Replica) -> None:
        """It is gone."""
        if self._scraper is not None:
            self._scraper.unwatch(replica.number)

    def forget(self, replica: Replica) -> None:
        """It was away, and may have been started anew."""
        if self._following is not None:
            self._following.forget(replica.number)

    def check(self) -> None:
        """Forget what has become too old to go by."""
        if self._following is not None:
            self._following.check()
        if self._scraper is None:
            return
        now_ms = self._dispatcher.clock_ms()
        for replica in list(self._heard):
            reading = self._scraper.readings.of(replica)
            if reading is None or reading.is_stale(now_ms):
                self._heard.discard(replica)
                self._dispatcher.read(replica, _UNKNOWN)

    async def close(self) -> None:
        """Ask nobody any more, and follow nobody."""
        if self._scraper is not None:
            await self._scraper.close()
        if self._following is not None:
            await self._following.stop()

    def state_of(self, replica: Replica) -> ReplicaState:
        """The replica as the page of metrics shows it."""
        scraper, following = self._scraper, self._following
        number = replica.number
        return ReplicaState(
            url=replica.url,
            in_flight=replica.in_flight,
            connects=replica.pool.connects,
            is_left_out=not replica.is_up,
            outstanding_work_ms=self._dispatcher.ledger.pending_ms(number),
            reading=None if scraper is None else scraper.readings.of(number),
            attempts=None if scraper is None else scraper.readings.attempts(number),
            kv=None if following is None else following.counts(number),
            kv_is_silent=following is not None and following.is_silent(number),
        )

    def _hear(self, replica: int, reading: Reading) -> None:
        engine = reading.engine
        told = (engine.waiting_requests, engine.running_requests, engine.kv_use)
        if all(value is None for value in told):
            return
        waiting, running, kv_use = (math.nan if value is None else value for value in told)
        self._heard.add(replica)
        self._dispatcher.read(replica, (waiting, running, kv_use))
