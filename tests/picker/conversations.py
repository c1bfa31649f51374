"""A picker without a network: a router behind it, and conversations with it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from pointsman.picker import wire
from pointsman.picker.conversation import Conversation
from pointsman.picker.picks import Picks
from pointsman.picker.replies import Replies
from pointsman.router.service import Router
from tests.router.routers import routing

MOST_BYTES = 1 << 16


@dataclass
class Desk:
    router: Router
    picks: Picks
    complaints: list[str]

    def conversation(self, *, sees_answer: bool = True) -> Conversation:
        return Conversation(self.picks, Replies(), MOST_BYTES, sees_answer=sees_answer)

    @property
    def in_flight(self) -> list[int]:
        return [replica.in_flight for replica in self.router.membership.members]


@asynccontextmanager
async def desk(urls: list[str], policy: str = "round_robin", **given: Any):
    """Yields a Desk; at its end nothing may be in flight."""
    complaints: list[str] = []
    async with routing(urls, policy, complaints=complaints, **given) as (router, _):
        picks = Picks(router, complaints.append)
        try:
            yield Desk(router, picks, complaints)
        finally:
            picks.stop()
        assert router.dispatcher.ledger.in_flight == 0


async def told(conversation: Conversation, *messages: Any) -> list[Any]:
    """All replies to these messages, as Envoy reads them."""
    read = wire.message("ProcessingResponse").FromString
    return [read(reply) for message in messages for reply in await conversation.take(message)]
