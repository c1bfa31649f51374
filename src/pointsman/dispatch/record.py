"""The decision log: what stands in each of its lines.

JSON Lines. The first line is a LogHead; then a Choice where a request was sent to a replica, an
Outcome where it ended, and Joined where a replica was added, in the order in which these things
happened. Times are milliseconds of
the writer's clock since ``started_at``. There is no text of a prompt or an answer in it.
"""

from __future__ import annotations

import struct
from typing import Annotated

import msgspec
import numpy as np

from pointsman.costs.stages import StageCosts
from pointsman.dispatch.ledger import NOWHERE
from pointsman.dispatch.prefix_index import Chain
from pointsman.dispatch.view import UNKNOWN, Situation
from pointsman.policies.policy import LOGGED_ROWS, ROWS, WORK_MS
from pointsman.workload.workload import MAX_TIME_MS, MAX_TOKENS

SCHEMA = "pointsman.decision-log"
VERSION = 1

OK = "ok"
ERROR = "error"
CANCELLED = "cancelled"
TRUNCATED = "truncated"
RETRIED = "retried"  # failed before an answer, and tried again by another choice
STATUSES = (OK, ERROR, CANCELLED, TRUNCATED, RETRIED)

# What a reader accepts, and a workload can hold.
Tokens = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]
TimeMs = Annotated[float, msgspec.Meta(ge=0, le=MAX_TIME_MS)]
Fraction = Annotated[float, msgspec.Meta(ge=0, lt=1)]
HttpStatus = Annotated[int, msgspec.Meta(ge=100, le=999)]
Bytes = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


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
    costs: StageCosts  # what expected work was priced with
    policy_sha256: str | None = None  # of FILE.py as it was loaded; None for a policy of ours


class Joined(
    msgspec.Struct, tag_field="event", tag="joined", frozen=True, forbid_unknown_fields=True
):
    """A replica that was added after the start; its number is the next one."""

    time_ms: TimeMs
    replica: int
    url: str


class Choice(
    msgspec.Struct, tag_field="event", tag="choice", frozen=True, forbid_unknown_fields=True
):
    """A request, the view of the fleet, and the replica it was sent to."""

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
    candidates: list[int]
    view: dict[str, list[float | None]]  # a row a signal, an entry a candidate
    replica: int
    reason: str
    expected_wait_ms: float
    expected_work_ms: float
    attempt: int = 1  # of the same request: 2 where one choice for it has failed

    @property
    def situation(self) -> Situation:
        """What the choice was made from, bit for bit."""
        absent = [None] * len(self.candidates)
        rows = [self.view.get(name, absent) for name in LOGGED_ROWS]
        rows += [absent] * (ROWS - len(LOGGED_ROWS))
        return Situation(
            now_ms=self.time_ms,
            prompt_tokens=UNKNOWN if self.prompt_tokens is None else self.prompt_tokens,
            sequence=self.sequence,
            home=NOWHERE if self.home is None else self.home,
            random=self.random,
            candidates=self.candidates,
            view=np.array(rows, dtype=np.float64),  # None becomes NaN
        )


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
    usage: Usage
    response_bytes: Bytes  # of the body, as forwarded
    error: str | None = None


Line = LogHead | Joined | Choice | Outcome


def signal_rows(situation: Situation) -> dict[str, list[float | None]]:
    """The view by the names of its rows, the work only where it was priced."""
    priced = not np.isnan(situation.view[WORK_MS, 0])
    rows = LOGGED_ROWS if priced else LOGGED_ROWS[:WORK_MS]
    return dict(zip(rows, situation.view.tolist(), strict=False))


def hexadecimal(chain: Chain) -> list[str]:
    """The chain's hashes as the log writes them."""
    count = len(chain.hashes)
    return struct.pack(f">{count}Q", *chain.hashes).hex(" ", 8).split()
