"""What a protocol of hand-offs is, and what it works with.

Protocol.hand_over(legs) -> the body that the decode replica gets
         |
         legs.prefill(fields), legs.call_prefill(...), legs.call_decode(...), legs.handed_off()

HandOffError        there is no hand-off; ``cause`` is counted
└── RejectedError   the prefill replica refused the request itself
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from numpy.typing import NDArray

from pointsman.core.errors import PointsmanError
from pointsman.router.handoff.bodies import Fields
from pointsman.router.messages import ResponseHead
from pointsman.router.upstream import ReplicaAddress, ReplicaError

PREFILL_UNREACHABLE = "prefill_unreachable"
PREFILL_LOST = "prefill_lost"
PREFILL_TIMEOUT = "prefill_timeout"
PREFILL_ERROR = "prefill_error"
REJECTED = "rejected"
NO_PARAMETERS = "no_parameters"
NO_ROOM = "no_room"
SEVERAL = "several_answers"
TRANSFER_FAILED = "transfer_failed"
TRANSFER_TIMEOUT = "transfer_timeout"
CAUSES = (
    *(PREFILL_UNREACHABLE, PREFILL_LOST, PREFILL_TIMEOUT, PREFILL_ERROR, REJECTED),
    *(NO_PARAMETERS, NO_ROOM, SEVERAL, TRANSFER_FAILED, TRANSFER_TIMEOUT),
)


class HandOffError(PointsmanError):
    """There is no hand-off. ``error``: what the client gets where the decode replica cannot do
    without."""

    def __init__(self, cause: str, error: ReplicaError) -> None:
        super().__init__(str(error))
        self.cause = cause
        self.error = error


class RejectedError(HandOffError):
    """The prefill replica refused the request, as the decode replica would."""

    def __init__(self, head: ResponseHead, body: bytes) -> None:
        super().__init__(REJECTED, ReplicaError("the prefill replica refused it", REJECTED))
        self.head = head
        self.body = body


class Legs(Protocol):
    """One request on its way over a pair. ``fields``: the client's, without the protocol's own."""

    fields: Fields
    chain: NDArray  # type: ignore[type-arg]  # the hashes of its prompt
    prefill_number: int
    decode_number: int
    prefill_address: ReplicaAddress
    bootstrap_port: int | None  # of the prefill replica alone

    async def prefill(self, fields: Fields) -> bytes:
        """What the prefill replica answers to the request with these fields; then it is free of it.

        Raises HandOffError.
        """

    def prefill_beside(self, fields: Fields) -> None:
        """The same while the decode replica works, which is cut off where it fails."""

    async def call_prefill(self, method: bytes, target: bytes, body: bytes) -> bytes:
        """What the prefill replica answers to a call that moves a cache. Raises HandOffError."""

    async def call_decode(self, method: bytes, target: bytes, body: bytes) -> bytes:
        """What the decode replica answers to one."""

    def handed_off(self, size_bytes: int | None) -> None:
        """The cache is on the decode replica."""

    def at_end(self, act: Callable[[], None]) -> None:
        """To be done when the request is over there, in whatever way."""

    def failure(self, cause: str, what: str) -> HandOffError:
        """There is no hand-off because the prefill replica did this."""


class HandOffProtocol(Protocol):
    """One way to hand over.

    ``moves_all``: what the decode replica holds of a prompt is moved too. ``decodes_alone``:
    whether a decode replica can compute a prompt. ``reserved``: fields of a body that only the
    router may set.
    """

    name: str
    moves_all: bool
    decodes_alone: bool
    reserved: frozenset[str]

    async def hand_over(self, legs: Legs) -> Fields:
        """What the decode replica is asked. Raises HandOffError."""
