"""SGLang's bootstrap: the same request to both at once, which meet in a room of a random number.

Source: sgl-project/sglang, sgl-model-gateway/src/routers/http/pd_types.rs and pd_router.rs.
"""

from __future__ import annotations

import secrets

from pointsman.router.handoff.bodies import Fields, answers_in, value
from pointsman.router.handoff.protocol import Legs

DEFAULT_PORT = 8998
HOST, PORT, ROOM = "bootstrap_host", "bootstrap_port", "bootstrap_room"
ROOM_BITS = 63


def new_room() -> int:
    """A number that no other hand-off has: all its bits are random, none is of a clock."""
    return secrets.randbits(ROOM_BITS)


class SGLang:
    """``port``: of all prefill replicas that have none of their own."""

    name = "sglang"
    moves_all = False
    decodes_alone = False
    reserved = frozenset((HOST, PORT, ROOM))

    def __init__(self, port: int = DEFAULT_PORT) -> None:
        self._port = port

    async def hand_over(self, legs: Legs) -> Fields:
        """Both get the request with the room, or a list of rooms where it is several."""
        host, port = legs.prefill_address.host, legs.bootstrap_port or self._port
        count = answers_in(legs.fields)
        if count is None:
            where = {HOST: value(host), PORT: value(port), ROOM: value(new_room())}
        else:
            rooms = [new_room() for _ in range(count)]
            where = {HOST: value([host] * count), PORT: value([port] * count), ROOM: value(rooms)}
        asked = {**legs.fields, **where}
        legs.prefill_beside(asked)
        return asked
