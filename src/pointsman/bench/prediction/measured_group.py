"""A group as it was measured, as far as a prediction can be held against it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pointsman.bench.client.rows import OK, Row
from pointsman.evidence.envelope import Bounds, ServingGroup
from pointsman.evidence.metrics import METRIC_NAMES, MetricName, Metrics


@dataclass(frozen=True, slots=True)
class MeasuredGroup:
    """``intervals`` lack what was measured once; ``failure`` says why there is no result."""

    name: str
    metrics: Metrics
    intervals: dict[MetricName, Bounds]
    is_split: bool = False
    cached_token_fraction: float | None = None
    failure: str | None = None


def measured_group(envelope: ServingGroup, rows: Iterable[Row] = ()) -> MeasuredGroup:
    """From a group's evidence; ``rows`` of all its repeats tell what was cached.

    Of a pair they do not: it is the decode engine that tells, of what was handed over to it.
    """
    is_split = envelope.layout.mode == "pd_disaggregated"
    invalid = [repeat.invalid for repeat in envelope.repeats if repeat.invalid is not None]
    failure = envelope.failure.reason if envelope.failure else next(iter(invalid), None)
    return MeasuredGroup(
        name=envelope.group,
        metrics=envelope.metrics,
        intervals={
            name: interval
            for name in METRIC_NAMES
            if (interval := envelope.details[name].interval) is not None
        },
        is_split=is_split,
        cached_token_fraction=None if is_split else cached_token_fraction(rows),
        failure=failure,
    )


def cached_token_fraction(rows: Iterable[Row]) -> float | None:
    """Of the prompt tokens of measured requests that ended well and whose engine says; None where
    none does."""
    cached = prompt = 0
    for row in rows:
        if row.status == OK and not row.is_warmup and row.cached_tokens is not None:
            cached += row.cached_tokens
            prompt += row.prompt_tokens or row.asked_prompt_tokens
    return cached / prompt if prompt else None
