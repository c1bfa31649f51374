"""The decision log: what stands in each of its lines.

JSON Lines. The first line is a LogHead; then a Choice where a request was sent to a replica, Held
where it was held back for one, Unplaced where it waited and got none, a FirstToken where its stream
began, an Outcome where it ended, a Reading where an engine told its gauges, and Joined where a
replica was added; where prefill and decode are apart, Prefilled, HandedOff and FellBack in between;
in the order in which these things happened: together they are all that the router's accounts
depend on. In a file that continues another one a Snapshot follows the head. Times
are milliseconds of the writer's clock since ``started_at``. There is no text of a prompt or an
answer in it.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np

from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.hold_order import HoldRules
from pointsman.dispatch.homes import NOWHERE
from pointsman.dispatch.prefix_index import Chain
from pointsman.dispatch.view import UNKNOWN, Situation
from pointsman.policies.policy import LOGGED_ROWS, View
from pointsman.workload.workload import MAX_TIME_MS, MAX_TOKENS

SCHEMA = "pointsman.decision-log"
VERSION = 3
PAIRS_VERSION = 4  # where prefill and decode are apart
READ_VERSIONS = (2, 3, 4)  # 2 knew nothing of requests that wait

# Up to so many candidates every line has the view of all; beyond, that of those that mattered,
# and of all every so many choices.
ALL_CANDIDATES = 16
FULL_VIEW_EVERY = 64

OK = "ok"
ERROR = "error"
CANCELLED = "cancelled"
TRUNCATED = "truncated"
RETRIED = "retried"  # failed before an answer, and tried again by another choice
STATUSES = (OK, ERROR, CANCELLED, TRUNCATED, RETRIED)

# Why a request that waited got no replica, where the router did not refuse it.
CLIENT_LEFT = "client_left"
ROUTER_ERROR = "router_error"

# What a reader accepts, and a workload can hold.
Tokens = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]
TimeMs = Annotated[float, msgspec.Meta(ge=0, le=MAX_TIME_MS)]
Fraction = Annotated[float, msgspec.Meta(ge=0, lt=1)]
HttpStatus = Annotated[int, msgspec.Meta(ge=100, le=999)]
Key = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Bytes = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]

# A prefill and a decode replica; None: the first one does both.
Pair = tuple[int, int | None]


class LogHead(
    msgspec.Struct, tag_field="event", tag="log", frozen=True, forbid_unknown_fields=True
):
    """How the choices of this log were made."""

    schema: str
    version: int
    pointsman: str  # the version of the software
    started_at: str  # ISO 8601, UTC
    policy: str  # a name of ours, or FILE.py:NAME
    parameters: dict[str, float]
    reads: list[str]  # what the policy was shown of the signals below
    signals: list[str]  # what the choices record
    replicas: list[str]  # a number in a choice is an index into these
    seed: int
    block_tokens: int  # tokens a block hash stands for, as estimated
    facts: list[ReplicaFacts]  # what was known of each replica beforehand
    policy_sha256: str | None = None  # of FILE.py as it was loaded; None for a policy of ours
    holding: HoldRules | None = None  # None: requests are not held while a replica is free
    # Where prefill and decode are apart: what a number of a candidate stands for.
    pairs: list[Pair] | msgspec.UnsetType = msgspec.UNSET
    moves_all: bool | msgspec.UnsetType = msgspec.UNSET  # also what the destination holds


class Ask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request, the view of the fleet, and the replica that the policy chose for it."""

    sequence: int
    time_ms: TimeMs
    request_id: str
    path: str
    prompt_tokens: Tokens | None  # estimated from the text; None where no text was read
    output_tokens: Tokens  # as far as it was priced
    block_hashes: list[str]  # 16 hexadecimal digits each
    session: str | None  # a keyed hash of its name; the key is not kept
    home: int | None  # the replica of the session's last request
    random: Fraction
    key: Key  # of the session, else of the first block; 0 for neither
    priced_tokens: Tokens  # what the prompt was priced as
    shows_first_token: bool  # a stream; else its first token is taken to come when expected
    candidates: list[int]
    seen: list[int]  # the candidates that the view is of
    hits: dict[int, float]  # leading tokens of the prompt that a candidate holds, where it does
    view: dict[str, list[float | None]]  # a row a signal, an entry one of `seen`
    replica: int
    reason: str
    expected_wait_ms: float
    expected_work_ms: float  # of its prefill
    attempt: int = 1  # of the same request: 2 where one choice for it has failed
    after: int | None = None  # the sequence of the Held that this one takes the place of
    waited_ms: TimeMs = 0.0  # in the router, until now
    # Where prefill and decode are apart: `replica`, `candidates` and `home` are numbers of pairs,
    # `hits` are by replica, and this is the pair chosen.
    pair: Pair | msgspec.UnsetType = msgspec.UNSET

    @property
    def hit_tokens(self) -> int:
        """Of the prompt, what the replica that computes it is taken to hold."""
        computes = self.replica if isinstance(self.pair, msgspec.UnsetType) else self.pair[0]
        return int(self.hits.get(computes, 0.0))

    @property
    def has_whole_view(self) -> bool:
        """Whether the view is of all candidates."""
        return len(self.seen) == len(self.candidates)

    @property
    def logged_view(self) -> View:
        """The view of the candidates seen; None becomes NaN."""
        rows = [self.view[name] for name in LOGGED_ROWS]
        return np.array([*rows, self.seen], dtype=np.float64)

    def situation(self, view: View) -> Situation:
        """What the choice was made from, bit for bit; ``view`` is that of all candidates."""
        return Situation(
            now_ms=self.time_ms,
            prompt_tokens=UNKNOWN if self.prompt_tokens is None else self.prompt_tokens,
            sequence=self.sequence,
            home=NOWHERE if self.home is None else self.home,
            random=self.random,
            key=self.key,
            candidates=self.candidates,
            view=view,
        )


class Choice(Ask, tag_field="event", tag="choice", frozen=True, forbid_unknown_fields=True):
    """The request was sent there."""


class Held(Ask, tag_field="event", tag="held", frozen=True, forbid_unknown_fields=True):
    """The request is held back for that replica, until another line names this one as ``after``."""


class Unplaced(
    msgspec.Struct, tag_field="event", tag="unplaced", frozen=True, forbid_unknown_fields=True
):
    """A request that waited, or could not, got no replica. Tokens and hashes are as in an Ask."""

    time_ms: TimeMs
    request_id: str
    path: str
    prompt_tokens: Tokens | None
    output_tokens: Tokens
    block_hashes: list[str]
    session: str | None
    attempt: int
    after: int | None  # the sequence of the Held that ends with this
    waited_ms: TimeMs
    cause: str  # the router's code of the refusal, CLIENT_LEFT or ROUTER_ERROR


class FirstToken(
    msgspec.Struct, tag_field="event", tag="first_token", frozen=True, forbid_unknown_fields=True
):
    """The first token of a stream came back."""

    sequence: int
    time_ms: TimeMs


class Prefilled(
    msgspec.Struct, tag_field="event", tag="prefilled", frozen=True, forbid_unknown_fields=True
):
    """The prefill was answered: the prefill replica is free of the request."""

    sequence: int
    time_ms: TimeMs
    # When its first token is taken to come, where it will not be seen.
    assumed_first_ms: TimeMs | None
    engine_ms: TimeMs | None = None  # since a slot began with it, as the engine told; None: not


class HandedOff(
    msgspec.Struct, tag_field="event", tag="handed_off", frozen=True, forbid_unknown_fields=True
):
    """The prompt's cache is on the decode replica, or was taken from there."""

    sequence: int
    time_ms: TimeMs
    replica: int  # the number of the pair
    tokens: float  # of the prompt, as it is priced, those that were moved
    took_ms: TimeMs | None  # None: it could not be seen
    bytes: Bytes | None  # None: the protocol does not say


class FellBack(
    msgspec.Struct, tag_field="event", tag="fell_back", frozen=True, forbid_unknown_fields=True
):
    """No hand-off: the decode replica computes the prompt, and it counts there from now on."""

    sequence: int
    time_ms: TimeMs
    cause: str
    uncached_tokens: Tokens  # there
    shows_first_token: bool  # as of its choice


class Reading(
    msgspec.Struct, tag_field="event", tag="reading", frozen=True, forbid_unknown_fields=True
):
    """What an engine told of itself; None where it did not."""

    replica: int
    time_ms: TimeMs
    waiting: float | None
    running: float | None
    kv_use: float | None

    @property
    def gauges(self) -> tuple[float, float, float]:
        """The three, NaN for None."""
        told = (self.waiting, self.running, self.kv_use)
        waiting, running, kv_use = (float("nan") if value is None else value for value in told)
        return waiting, running, kv_use


class Joined(
    msgspec.Struct, tag_field="event", tag="joined", frozen=True, forbid_unknown_fields=True
):
    """A replica was added after the start; its number is the next one."""

    time_ms: TimeMs
    replica: int
    url: str
    facts: ReplicaFacts


class Usage(msgspec.Struct, frozen=True):
    """Tokens as the engine counted them; None where it did not say."""

    prompt_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    cached_tokens: Tokens | None = None


NO_USAGE = Usage()


class Outcome(
    msgspec.Struct, tag_field="event", tag="outcome", frozen=True, forbid_unknown_fields=True
):
    """How a request ended."""

    sequence: int
    request_id: str
    status: str  # one of STATUSES
    http_status: HttpStatus | None  # None where no answer was begun
    first_token_ms: TimeMs | None  # of a stream; when, not how long
    finish_ms: TimeMs
    realised_wait_ms: float | None  # the time to its first token beyond the work expected for it
    usage: Usage
    response_bytes: Bytes  # of the body, as forwarded
    error: str | None = None


class Accounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The router's accounts as columns, little-endian, by name (``snapshot.py`` says which)."""

    of_replicas: dict[str, bytes]
    of_requests: dict[str, bytes]
    held: dict[str, bytes]
    answers: dict[str, bytes]
    finished: tuple[int, int, int]
    sent: tuple[int, int] = (0, 0)
    pairs: dict[str, bytes] | msgspec.UnsetType = msgspec.UNSET
    link: dict[str, bytes] | msgspec.UnsetType = msgspec.UNSET


class Snapshot(
    msgspec.Struct, tag_field="event", tag="snapshot", frozen=True, forbid_unknown_fields=True
):
    """The accounts as the lines of all files before this one left them."""

    time_ms: TimeMs
    file: Annotated[int, msgspec.Meta(ge=2)]
    next_sequence: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    joined: list[Joined]
    accounts: Accounts


HandOffEvent = Prefilled | HandedOff | FellBack
Event = Choice | Held | Unplaced | FirstToken | Outcome | Reading | Joined | Snapshot | HandOffEvent
Line = LogHead | Event


def hexadecimal(chain: Chain) -> list[str]:
    """The chain's hashes as the log writes them."""
    return chain.array.astype(">u8").tobytes().hex(" ", 8).split()
