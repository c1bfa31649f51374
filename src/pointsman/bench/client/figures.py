"""The rows of a load as the columns that every figure comes from, and what they add to figures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pointsman.bench.client.load import Gaps
from pointsman.bench.client.measure import Measured
from pointsman.bench.client.rows import OK, REJECTED, STATUSES, Row
from pointsman.metrics.goodput import Objectives
from pointsman.metrics.intertoken import GapHistogram
from pointsman.metrics.latency import FAILED, FINISHED, NO_REPLICA, UNKNOWN_TOKENS, Answers
from pointsman.metrics.latency import REJECTED as TURNED_AWAY
from pointsman.metrics.measured import UNKNOWN, MeasuredMetrics, Seen, measured_metrics
from pointsman.workload.workload import Floats

SHORT_MS = 10_000.0
FEW_REQUESTS = 100


@dataclass(frozen=True, slots=True)
class LengthCheck:
    """Tokens that were asked for against those that the server counted, of requests that ended
    well; a request whose count is unknown is in neither."""

    requests: int
    different: int
    asked_tokens: int
    counted_tokens: int
    largest_difference: int  # of one request, counted - asked by size

    @property
    def sentence(self) -> str | None:
        """What does not fit, with both counts; None where all of it does."""
        if not self.different:
            return None
        return (
            f"{self.different} of {self.requests} requests differ in length: {self.asked_tokens}"
            f" tokens were asked for, {self.counted_tokens} counted by the server; one request"
            f" by {self.largest_difference:+d}"
        )


@dataclass(frozen=True, slots=True)
class Figures:
    """What a measurement says; ``warnings`` are what its reader must know."""

    metrics: MeasuredMetrics
    statuses: dict[str, int]  # of measured requests; they add up to those that were offered
    warmup_requests: int
    finish_reasons: dict[str, int]
    tokens_from: dict[str, int]
    prompt_lengths: LengthCheck
    output_lengths: LengthCheck
    coalesced: int
    resent: int
    replicas: dict[str, int]  # requests of each, where a router says
    warnings: tuple[str, ...]


def figures(measured: Measured, objectives: Objectives | None = None) -> Figures:
    """The figures of all requests but those of the warm-up, by when they were due."""
    rows = [row for row in measured.rows if not row.is_warmup]
    ended_well = [row for row in rows if row.status == OK]
    prompts = _lengths([(row.asked_prompt_tokens, row.prompt_tokens) for row in ended_well])
    outputs = _lengths([(row.asked_output_tokens, row.output_tokens) for row in ended_well])
    metrics = measured_metrics(seen_of(rows), *_histograms(measured.gaps), objectives)
    statuses = Counter(row.status for row in rows)
    return Figures(
        metrics=metrics,
        statuses={status: statuses[status] for status in STATUSES},
        warmup_requests=len(measured.rows) - len(rows),
        finish_reasons=dict(Counter(row.finish_reason or "none" for row in ended_well)),
        tokens_from=dict(Counter(row.tokens_from or "unknown" for row in ended_well)),
        prompt_lengths=prompts,
        output_lengths=outputs,
        coalesced=sum(row.is_coalesced for row in ended_well),
        resent=sum(row.sends > 1 for row in rows),
        replicas=dict(Counter(row.replica for row in rows if row.replica is not None)),
        warnings=_warnings(measured, metrics, (prompts, outputs)),
    )


def seen_of(rows: Sequence[Row], replicas: Sequence[str] = ()) -> Seen:
    """Columns of rows; ``replicas`` are the URLs whose places number the replicas."""
    places = {url: place for place, url in enumerate(replicas)}
    numbers = [places.get(row.replica or "", NO_REPLICA) for row in rows]
    absent = np.full(len(rows), math.nan)
    answers = Answers(
        replica=np.array(numbers, dtype=np.int64),
        status=np.array([_status(row) for row in rows], dtype=np.int8),
        arrival_ms=np.array([row.intended_ms for row in rows], dtype=np.float64),
        scheduled_ms=absent,
        first_token_ms=_floats([row.first_token_ms for row in rows]),
        finish_ms=_floats([_finish_ms(row) for row in rows]),
        prompt_tokens=_counts([_prompt_tokens(row) for row in rows], 0),
        output_tokens=_counts([row.output_tokens for row in rows], 0),
        cached_tokens=_counts([row.cached_tokens for row in rows], UNKNOWN_TOKENS),
        preemptions=np.zeros(len(rows), dtype=np.int64),
    )
    return Seen(
        answers,
        _floats([row.sent_ms for row in rows]),
        _floats([row.first_text_ms for row in rows]),
        _counts([row.first_chunk_tokens for row in rows], UNKNOWN),
    )


def _status(row: Row) -> int:
    if row.status == OK:
        return FINISHED
    return TURNED_AWAY if row.status == REJECTED else FAILED


def _finish_ms(row: Row) -> float | None:
    """The last token's of what ended well; whatever else ended, when it did."""
    if row.status == OK and row.last_token_ms is not None:
        return row.last_token_ms
    return row.end_ms


def _prompt_tokens(row: Row) -> int:
    return row.asked_prompt_tokens if row.prompt_tokens is None else row.prompt_tokens


def _histograms(gaps: Gaps) -> tuple[GapHistogram, GapHistogram | None]:
    chunks = GapHistogram.of(gaps.chunk_ms)
    if gaps.tokens.size == 0:
        return chunks, None
    return chunks, GapHistogram.of(gaps.counted_ms, gaps.tokens)


def _lengths(pairs: Sequence[tuple[int, int | None]]) -> LengthCheck:
    known = [(asked, counted) for asked, counted in pairs if counted is not None]
    differences = [counted - asked for asked, counted in known if counted != asked]
    return LengthCheck(
        requests=len(known),
        different=len(differences),
        asked_tokens=sum(asked for asked, _ in known),
        counted_tokens=sum(counted for _, counted in known),
        largest_difference=max(differences, key=abs, default=0),
    )


def _warnings(
    measured: Measured, metrics: MeasuredMetrics, lengths: tuple[LengthCheck, LengthCheck]
) -> tuple[str, ...]:
    found = [*measured.disturbance.bottleneck, *measured.disturbance.remarks]
    if measured.lengths.mismatch is not None:
        found.append(measured.lengths.mismatch)
    for what, check in zip(("prompts", "answers"), lengths, strict=True):
        if check.sentence is not None:
            found.append(f"{what}: {check.sentence}")
    if not measured.is_complete:
        found.append(
            f"incomplete: {len(measured.rows)} of {measured.planned} requests were offered before"
            " the load was interrupted"
        )
    if metrics.finished and metrics.window_ms < SHORT_MS:
        found.append(
            f"short: {metrics.window_ms / 1e3:.3g} s were measured; a tail wants more than"
            f" {SHORT_MS / 1e3:g} s"
        )
    if metrics.finished < FEW_REQUESTS:
        found.append(
            f"few: {metrics.finished} requests ended well; P99 of fewer than {FEW_REQUESTS} is"
            " their slowest one"
        )
    return tuple(found)


def _floats(values: Sequence[float | None]) -> Floats:
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)


def _counts(
    values: Sequence[int | None], absent: int
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([absent if value is None else value for value in values], dtype=np.int64)
