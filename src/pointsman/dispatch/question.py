"""What is asked about one request, and what has become of it so far."""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

import msgspec

from pointsman.dispatch.ledger import Needs
from pointsman.dispatch.prefix_index import EMPTY_CHAIN, Chain
from pointsman.dispatch.view import UNKNOWN


class Question(msgspec.Struct, frozen=True):
    """What is asked about one request; tokens are estimates.

    ``unread_tokens`` prices a prompt that was not read, whose ``prompt_tokens`` are UNKNOWN.
    ``streams``: the answer shows when its first token comes.
    ``attempt`` counts the choices for the same request.
    """

    request_id: str
    path: str = "/"
    prompt_tokens: int = UNKNOWN
    output_tokens: int = 0
    chain: Chain = EMPTY_CHAIN
    session: str | None = None
    unread_tokens: int = 0
    streams: bool = False
    attempt: int = 1
    model: str | None = None

    @property
    def priced_tokens(self) -> int:
        """Tokens of the prompt, as it is priced."""
        is_unread = self.prompt_tokens == UNKNOWN
        return self.unread_tokens if is_unread else self.prompt_tokens

    @property
    def key(self) -> int:
        """The same for requests of one session, else of one first block; 0 for neither."""
        if self.session is not None:
            return hash_of(self.session)
        return int(self.chain.array[0]) >> 1 if len(self.chain) else 0


class Hold(NamedTuple):
    """A request is held for a replica, where it counts; ``sequence`` of the log's line that says
    so."""

    sequence: int
    replica: int
    needs: Needs


class Wait(NamedTuple):
    """A request's wait in the router: since when, and what it is held for, if it is."""

    since_ms: float | None = None
    hold: Hold | None = None

    def lasted_ms(self, now_ms: float) -> float:
        """How long it has waited until now."""
        return 0.0 if self.since_ms is None else max(0.0, now_ms - self.since_ms)


NO_WAIT = Wait()


def hash_of(name: str) -> int:
    """63 bits of a name."""
    return (
        int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()) >> 1
    )
