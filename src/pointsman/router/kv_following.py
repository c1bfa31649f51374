"""Engines' KV events, from the wire to the index of prefixes; and the alarm where none come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pointsman.dispatch.dispatcher import Dispatcher
from pointsman.router.edge import Complain
from pointsman.router.engine.kv_beliefs import KvBeliefs
from pointsman.router.engine.kv_endpoint import KvSource, refuse_clashes
from pointsman.router.engine.kv_events import (
    SILENT_AFTER_MS,
    KvCallbacks,
    KvCounts,
    KvSubscriber,
    load_zmq,
)
from pointsman.router.prompt import BLOCK_TOKENS


@dataclass(frozen=True, slots=True)
class KvSettings:
    """Which replicas' events are followed, and when silence is an alarm.

    Raises InputError where pyzmq is missing or two sources cannot be told apart.
    """

    sources: Sequence[KvSource]
    silent_after_ms: float = SILENT_AFTER_MS

    def __post_init__(self) -> None:
        load_zmq()
        refuse_clashes(list(self.sources))

    @property
    def replicas(self) -> list[int]:
        """Those that are followed."""
        return sorted({source.replica for source in self.sources})


@dataclass(slots=True)
class _Flow:
    """Whether a replica computes. ``largest_blocks``: new ones of any request since the last
    look at which one had been served."""

    served: int = 0
    largest_blocks: int = 0


class KvFollowing:
    """Corrects the dispatcher's index from ``start`` to ``stop``.

    The index must have been made with these replicas as ``followed``. ``served``: how many requests
    a replica has answered well.
    """

    def __init__(
        self,
        settings: KvSettings,
        dispatcher: Dispatcher,
        served: Callable[[int], int],
        complain: Complain,
    ) -> None:
        index, ledger = dispatcher.prefixes, dispatcher.ledger
        self.beliefs = KvBeliefs(index, lambda replica: int(ledger.requests[replica]), BLOCK_TOKENS)
        index.on_held = self._sent
        told = (self.beliefs.stored, self.beliefs.removed, self.beliefs.cleared)
        self._subscriber = KvSubscriber(
            settings.sources,
            KvCallbacks(*told, complain),
            dispatcher.clock_ms,
            settings.silent_after_ms,
        )
        self._served = served
        self._flows = {replica: _Flow() for replica in settings.replicas}

    def start(self) -> None:
        """Bind and connect. Raises MachineError where an endpoint cannot be had."""
        self._subscriber.start()

    async def stop(self) -> None:
        """Close everything."""
        await self._subscriber.stop()

    def check(self) -> None:
        """Look what has ended, and whether its tokens were told of."""
        for replica, flow in self._flows.items():
            self.beliefs.check(replica)
            served = self._served(replica)
            if served > flow.served:
                self._subscriber.computed(replica, flow.largest_blocks * BLOCK_TOKENS)
                flow.served, flow.largest_blocks = served, 0

    def forget(self, replica: int) -> None:
        """The replica was away, and may have come back with an empty cache."""
        self._subscriber.forget(replica)

    def counts(self, replica: int) -> list[KvCounts] | None:
        """What came of its events; None where they are not followed."""
        return self._subscriber.counts(replica) if replica in self._flows else None

    def is_silent(self, replica: int) -> bool:
        """Whether tokens flow there and no event comes."""
        return self._subscriber.is_silent(replica)

    def _sent(self, replica: int, new_blocks: int) -> None:
        flow = self._flows[replica]
        flow.largest_blocks = max(flow.largest_blocks, new_blocks)
        self.beliefs.sent(replica, new_blocks)


def follow(
    settings: KvSettings | None,
    dispatcher: Dispatcher,
    served: Callable[[int], int],
    complain: Complain,
) -> KvFollowing | None:
    """What follows the events of those replicas; None where it is nobody's."""
    return None if settings is None else KvFollowing(settings, dispatcher, served, complain)
