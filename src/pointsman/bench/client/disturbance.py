"""What disturbed the client, and whether it was the bottleneck: then the run is no result.

A busy client inflates what it measures (llm-d/llm-d-benchmark#261; kubernetes-sigs/inference-perf
PR 204). Two things are seen of it: how late it noticed that a request was due (schedule delay), and
how late its event loop woke up for a timer every few ms, which is how long bytes lie unread too
(loop lag). Both are held against the times that they disturb: the mean against the mean TTFT, the
99th percentile against the 99th.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pointsman.bench.client.rows import Row
from pointsman.metrics.latency import Spread, spread_of
from pointsman.workload.workload import Floats

BEAT_MS = 10.0


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What a client may add: a fraction of what is measured, and never less than ``floor_ms``."""

    delay_fraction: float = 0.1
    floor_ms: float = 10.0
    rate_fraction: float = 0.95  # of the requested rate, at least
    cpu_fraction: float = 0.9  # of one core, at most


@dataclass(frozen=True, slots=True)
class Effort:
    """What the client's process saw of itself; times in ms."""

    loop_lag_ms: Floats
    wall_ms: float
    cpu_ms: float
    client_errors: int = 0  # requests that the client's own machine refused, such as for files


@dataclass(frozen=True, slots=True)
class Disturbance:
    """``bottleneck`` says why the run is invalid, a sentence each; empty where it is valid.

    ``remarks`` are what a reader must know of a valid run.
    """

    schedule_delay_ms: Spread
    client_queue_ms: Spread
    loop_lag_ms: Spread
    cpu_fraction: float | None  # of one core
    requested_rps: float | None
    achieved_rps: float | None  # at which the client noticed that requests were due
    bottleneck: tuple[str, ...]
    remarks: tuple[str, ...]

    @property
    def is_valid(self) -> bool:
        """Whether the client was no bottleneck."""
        return not self.bottleneck


class Heartbeat:
    """Collects how late each beat came."""

    def __init__(self) -> None:
        self._late = array("d")

    def beat(self, late_ms: float) -> None:
        """A beat came that late."""
        self._late.append(max(0.0, late_ms))

    def lags(self) -> Floats:
        """All of them."""
        return np.array(self._late, dtype=np.float64)


def disturbance(
    rows: Sequence[Row],
    effort: Effort,
    requested_rps: float | None,
    tolerance: Tolerance | None = None,
) -> Disturbance:
    """Judge a run by the rows that were sent and are no warm-up."""
    allowed = tolerance or Tolerance()
    sent = [row for row in rows if row.sent_ms is not None and not row.is_warmup]
    delays = _column([row.schedule_delay_ms for row in sent])
    queues = _column([row.client_queue_ms for row in sent])
    ttfts = _column([_ttft_from_send(row) for row in sent])
    achieved = _achieved_rps(sent) if requested_rps is not None else None
    cpu = effort.cpu_ms / effort.wall_ms if effort.wall_ms > 0.0 else None
    delay, lag, queue = map(spread_of, (delays, effort.loop_lag_ms, queues))
    ttft = spread_of(ttfts)
    found = [
        *_too_late("requests were noticed late", delay, ttft, allowed),
        *_too_late("the event loop woke up late", lag, ttft, allowed),
    ]
    if requested_rps and achieved is not None and achieved < allowed.rate_fraction * requested_rps:
        found.append(f"{achieved:.4g} requests a second came due, {requested_rps:.4g} were asked")
    if cpu is not None and cpu > allowed.cpu_fraction:
        found.append(f"the client took {cpu:.0%} of a core")
    if effort.client_errors:
        found.append(f"the client's machine refused {effort.client_errors} connections")
    return Disturbance(
        delay, queue, lag, cpu, requested_rps, achieved, tuple(found), _remarks(queue, ttft, sent)
    )


def _too_late(what: str, spread: Spread, ttft: Spread, allowed: Tolerance) -> list[str]:
    found = []
    for name in ("mean", "p99"):
        late_ms, of_ms = getattr(spread, name), getattr(ttft, name)
        limit_ms = max(allowed.floor_ms, allowed.delay_fraction * (of_ms or 0.0))
        if late_ms is not None and late_ms > limit_ms:
            found.append(
                f"{what}: {name} {late_ms:.3g} ms, where the {name} of TTFT from the send is"
                f" {'unknown' if of_ms is None else f'{of_ms:.4g} ms'}; at most {limit_ms:.3g} ms"
            )
    return found


def _remarks(queue: Spread, ttft: Spread, sent: Sequence[Row]) -> tuple[str, ...]:
    found = []
    if queue.mean is not None and queue.mean > 0.05 * (ttft.mean or 0.0) and queue.mean > 1.0:
        found.append(
            f"requests waited in the client for a place or a connection, {queue.mean:.4g} ms in the"
            " mean: latencies from the intended arrival hold that wait, those from the send do not"
        )
    coalesced = sum(row.is_coalesced for row in sent)
    if coalesced:
        found.append(
            f"coalesced: of {coalesced} of {len(sent)} answers all tokens came in one read, so that"
            " their TTFT is as long as their E2E and their TPOT is 0"
        )
    resent = sum(row.sends > 1 for row in sent)
    if resent:
        found.append(f"sent again, because the connection had been closed meanwhile: {resent}")
    return tuple(found)


def _achieved_rps(sent: Sequence[Row]) -> float | None:
    """The rate at which requests were noticed, between the first and the last."""
    noticed = [row.intended_ms + (row.schedule_delay_ms or 0.0) for row in sent]
    span_ms = max(noticed) - min(noticed) if noticed else 0.0
    return (len(noticed) - 1) * 1000.0 / span_ms if span_ms > 0.0 else None


def _ttft_from_send(row: Row) -> float | None:
    if row.first_token_ms is None or row.sent_ms is None:
        return None
    return row.first_token_ms - row.sent_ms


def _column(values: Sequence[float | None]) -> Floats:
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)
