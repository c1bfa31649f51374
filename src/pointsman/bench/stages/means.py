"""Where the time of a group's requests went: the mean of each stage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pointsman.bench.client.rows import OK
from pointsman.bench.stages.rows import JoinedRow
from pointsman.evidence.measured import Total


@dataclass(frozen=True, slots=True)
class Stage:
    """The mean of ``count`` requests, or of as many as an engine's histogram counted."""

    mean_ms: float
    count: int


@dataclass(frozen=True, slots=True)
class Stages:
    """Of measured requests that ended well; None is unknown, or no request had it.

    Of one engine that tells each request its times they add up to ``e2e``. Where queue wait and
    prefill are from an engine's histograms, its HTTP, tokenizer and way back are in none of them,
    and what they lack of ``e2e`` is that.
    """

    client_delay: Stage | None = None  # from intended arrival to the send
    router: Stage | None = None
    queue_wait: Stage | None = None  # in the engine that computes the prompt
    prefill: Stage | None = None
    handoff: Stage | None = None
    decode_wait: Stage | None = None
    decode: Stage | None = None
    e2e: Stage | None = None  # from intended arrival to the last token


@dataclass(frozen=True, slots=True)
class EngineTotals:
    """What histograms say of the same requests, in ms; None: nothing, or the rows have it."""

    queue_wait: Total | None = None
    prefill: Total | None = None
    handoff: Total | None = None


def measured_rows(rows: Sequence[JoinedRow]) -> list[JoinedRow]:
    """Those that figures are of and that ended well."""
    return [row for row in rows if row.status == OK and not row.is_warmup]


def stages_of(rows: Sequence[JoinedRow], totals: EngineTotals) -> Stages:
    """The means of requests that ended well, warm-up apart."""
    rows = measured_rows(rows)
    ended = [
        None if row.last_token_ms is None else row.last_token_ms - row.intended_ms for row in rows
    ]
    return Stages(
        client_delay=_mean([row.client_delay_ms for row in rows]),
        router=_mean([row.router_ms for row in rows]),
        queue_wait=_mean([row.queue_wait_ms for row in rows]) or _of(totals.queue_wait),
        prefill=_mean([row.prefill_ms for row in rows]) or _of(totals.prefill),
        handoff=_mean([row.handoff_ms for row in rows]) or _of(totals.handoff),
        decode_wait=_mean([row.decode_wait_ms for row in rows]),
        decode=_mean([row.decode_ms for row in rows]),
        e2e=_mean(ended),
    )


def _mean(values: Sequence[float | None]) -> Stage | None:
    known = [value for value in values if value is not None]
    return Stage(math.fsum(known) / len(known), len(known)) if known else None


def _of(total: Total | None) -> Stage | None:
    if total is None or total.mean is None:
        return None
    return Stage(total.mean, total.count)
