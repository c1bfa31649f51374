"""The stages of all requests of a group: rows, columns for its figures, and where these come from.

before = pages_of(urls); measured = measure(...); after = pages_of(urls)      each repeat
joined(Served.by(replicas, kv_bytes_per_token), [ServedLoad(measured.rows, log, before, after)])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pointsman.bench.client.figures import seen_of
from pointsman.bench.stages.means import Stages, stages_of
from pointsman.bench.stages.routed import Routed, read_routed
from pointsman.bench.stages.rows import JoinedRow, joined_row, rule_of
from pointsman.bench.stages.served import Served, ServedLoad
from pointsman.bench.stages.sources import Seen, engine_totals, told_of
from pointsman.evidence.measured import Told
from pointsman.evidence.metrics import MetricName
from pointsman.metrics.latency import Answers
from pointsman.workload.workload import Floats


@dataclass(frozen=True, slots=True)
class JoinedLoad:
    """One repeat: ``rows`` for its side file, all of them; ``answers`` without the warm-up."""

    rows: tuple[JoinedRow, ...]
    answers: Answers
    stages: Stages


@dataclass(frozen=True, slots=True)
class Joined:
    """``told`` is for ``group_figures``, ``stages`` of all repeats together."""

    loads: tuple[JoinedLoad, ...]
    told: dict[MetricName, Told]
    stages: Stages


def joined(served: Served, loads: Sequence[ServedLoad]) -> Joined:
    """Join each load's rows with the router's log and what the engines say.

    Raises InputError for a log that is none, and for one that has a request's id twice.
    """
    logs = {paths: read_routed(paths) for paths in {load.log for load in loads} if paths}
    seen = [_seen(served, load, logs.get(load.log)) for load in loads]
    made = [
        JoinedLoad(
            rows=tuple(each.rows),
            answers=answers_of(each.rows, served),
            stages=stages_of(each.rows, engine_totals(served, [each])),
        )
        for each in seen
    ]
    all_rows = [row for each in seen for row in each.rows]
    stages = stages_of(all_rows, engine_totals(served, seen))
    return Joined(tuple(made), told_of(served, seen), stages)


def answers_of(rows: Sequence[JoinedRow], served: Served) -> Answers:
    """Measured requests as columns; hand-offs of a group that has them, NaN where none was."""
    measured = [row for row in rows if not row.is_warmup]
    answers = seen_of(measured, served.urls).answers
    scheduled_ms = _column([row.scheduled_ms for row in measured])
    if served.handoff is None:
        return replace(answers, scheduled_ms=scheduled_ms)
    return replace(
        answers,
        scheduled_ms=scheduled_ms,
        handoff_ms=_column([row.handoff_ms for row in measured]),
        handoff_bytes=_column([row.handoff_bytes for row in measured]),
        prefilled_ms=scheduled_ms + _column([row.prefill_ms for row in measured]),
    )


def _seen(served: Served, load: ServedLoad, log: dict[str, Routed] | None) -> Seen:
    rule = rule_of(served.handoff, served.kv_bytes_per_token)
    rows = [
        joined_row(row, None if log is None else log.get(row.request_id), log is not None, rule)
        for row in load.rows
    ]
    return Seen(rows, log is not None, load.before, load.after)


def _column(values: Sequence[float | None]) -> Floats:
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)
