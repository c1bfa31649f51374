"""The router's own page of metrics.

One name has one source: what an engine told stands under ``pointsman_engine_...``, with its age,
what the router takes to be so under ``pointsman_estimated_...``, and neither ever stands in for
the other. What is not known has no sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pointsman.router.engine.kv_events import KvCounts
from pointsman.router.engine.reading import EngineReading
from pointsman.router.engine.scraper import Attempts, Reading
from pointsman.router.prometheus.counters import RouterCounters
from pointsman.router.prometheus.text import (
    Histogram,
    Labels,
    counter,
    gauge,
    histogram,
)

_MS_PER_S = 1000.0


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """One replica as it stands now; None where nothing is known or asked for."""

    url: str
    in_flight: int
    connects: int
    is_left_out: bool
    outstanding_work_ms: float | None = None  # by the router's own account
    reading: Reading | None = None
    attempts: Attempts | None = None
    kv: Sequence[KvCounts] | None = None
    kv_is_silent: bool = False


@dataclass(frozen=True, slots=True)
class RouterState:
    """What others keep and the page shows; ``replicas`` in the order of the counters' rows."""

    version: str
    policy: str
    now_ms: float
    replicas: Sequence[ReplicaState]
    held_requests: int = 0
    lost_log_lines: int = 0


def page(counters: RouterCounters, state: RouterState) -> str:
    """The page, in Prometheus' text format."""
    assert counters.replicas == len(state.replicas), "a row a replica"
    families = (
        *_router(counters, state),
        *_replicas(counters, state.replicas),
        *_times(counters, state.replicas),
        *_predictions(counters, state.replicas),
        *_engine_values(state),
        *_hearing(state),
    )
    return "".join(families)


def _router(counters: RouterCounters, state: RouterState) -> Iterable[str]:
    about = {"version": state.version, "policy": state.policy}
    yield gauge("pointsman_build_info", "The router's version and policy; always 1.", [(about, 1)])
    yield gauge(
        "pointsman_held_requests",
        "Requests that are held now, not sent to any replica.",
        [({}, state.held_requests)],
    )
    yield counter(
        "pointsman_shed_requests_total",
        "Requests turned away, by reason.",
        [({"reason": reason}, count) for reason, count in counters.shed.items()],
    )
    yield counter(
        "pointsman_decision_log_lost_lines_total",
        "Lines that the decision log could not take.",
        [({}, state.lost_log_lines)],
    )


def _replicas(counters: RouterCounters, replicas: Sequence[ReplicaState]) -> Iterable[str]:
    yield gauge(
        "pointsman_replica_up",
        "Whether the replica is a candidate: 0 while it is left out.",
        [(_of(replica), int(not replica.is_left_out)) for replica in replicas],
    )
    yield gauge(
        "pointsman_requests_in_flight",
        "Requests sent to the replica that have not ended.",
        [(_of(replica), replica.in_flight) for replica in replicas],
    )
    yield counter(
        "pointsman_requests_total",
        "Requests that ended, by status: ok, error, cancelled, truncated.",
        [
            ({**_of(replica), "status": status}, count)
            for status, row in counters.ended.items()
            for replica, count in zip(replicas, row, strict=True)
        ],
    )
    yield counter(
        "pointsman_choices_total",
        "Choices of the policy, by its reason.",
        [
            ({**_of(replica), "reason": reason}, count)
            for reason, row in counters.choices.items()
            for replica, count in zip(replicas, row, strict=True)
            if count
        ],
    )
    yield counter(
        "pointsman_retries_total",
        "Requests sent to the replica after another attempt had failed.",
        _rows(replicas, counters.retries),
    )
    yield counter(
        "pointsman_connects_total",
        "Connections to the replica that were begun.",
        [(_of(replica), replica.connects) for replica in replicas],
    )
    yield gauge(
        "pointsman_estimated_outstanding_work_seconds",
        "Expected work of what is in flight, by the router's own account.",
        [(_of(replica), _seconds(replica.outstanding_work_ms)) for replica in replicas],
    )


def _times(counters: RouterCounters, replicas: Sequence[ReplicaState]) -> Iterable[str]:
    def of_each(name: str, meaning: str, rows: Sequence[Histogram]) -> str:
        named = ((_of(replica), row) for replica, row in zip(replicas, rows, strict=True))
        return histogram(name, meaning, named, _MS_PER_S)

    yield histogram(
        "pointsman_choice_seconds",
        "Time that a choice took.",
        [({}, counters.choice_ms)],
        _MS_PER_S,
    )
    yield histogram(
        "pointsman_hold_seconds",
        "Time that requests were held before they were sent.",
        [({}, counters.held_ms)],
        _MS_PER_S,
    )
    yield of_each(
        "pointsman_ttft_seconds", "Time from the request to its first token.", counters.ttft_ms
    )
    yield of_each(
        "pointsman_expected_wait_seconds",
        "Wait at the replica as expected when the request was sent.",
        counters.expected_wait_ms,
    )
    yield of_each(
        "pointsman_realised_wait_seconds",
        "Wait at the replica as it came to be.",
        counters.realised_wait_ms,
    )
    yield of_each(
        "pointsman_wait_over_expected_seconds",
        "By how much a wait was longer than expected; 0 where it was not.",
        counters.wait_over_expected_ms,
    )


def _predictions(counters: RouterCounters, replicas: Sequence[ReplicaState]) -> Iterable[str]:
    yield counter(
        "pointsman_expected_cached_tokens_total",
        "Tokens taken to be cached, of all requests; the engine's own count stands beside it.",
        _rows(replicas, counters.expected_cached_tokens),
    )
    rows = (
        ("predicted_cached_tokens", "Tokens taken to be cached", counters.predicted_cached_tokens),
        (
            "reported_cached_tokens",
            "Tokens cached, says the engine",
            counters.reported_cached_tokens,
        ),
        (
            "false_hit_tokens",
            "Tokens taken to be cached beyond those that were",
            counters.false_hit_tokens,
        ),
        (
            "unforeseen_hit_tokens",
            "Cached tokens beyond those taken to be",
            counters.unforeseen_hit_tokens,
        ),
        ("predicted_hits", "Requests taken to find a prefix cached", counters.predicted_hits),
        ("false_hits", "Those of them that found none", counters.false_hits),
    )
    for name, meaning, row in rows:
        whole = f"{meaning}, of requests whose engine reported its count."
        yield counter(f"pointsman_{name}_total", whole, _rows(replicas, row))


_GAUGES: tuple[tuple[str, str, Callable[[EngineReading], float | None]], ...] = (
    ("waiting_requests", "Requests that wait", lambda engine: engine.waiting_requests),
    ("running_requests", "Requests that run", lambda engine: engine.running_requests),
    ("kv_use_ratio", "Use of the KV cache, 0 to 1", lambda engine: engine.kv_use),
    ("kv_blocks", "Blocks of the KV cache", lambda engine: engine.kv_blocks),
    ("block_tokens", "Tokens of a block", lambda engine: engine.block_tokens),
)
_COUNTERS: tuple[tuple[str, str, Callable[[EngineReading], float | None]], ...] = (
    (
        "prefix_cache_queries",
        "Tokens or blocks looked up in the prefix cache",
        lambda engine: engine.prefix_cache_queries,
    ),
    (
        "prefix_cache_hits",
        "Tokens or blocks found in the prefix cache",
        lambda engine: engine.prefix_cache_hits,
    ),
    ("cached_tokens", "Prompt tokens from a cache", lambda engine: engine.cached_tokens),
    ("prompt_tokens", "Prompt tokens, cached ones too", lambda engine: engine.prompt_tokens),
    ("generated_tokens", "Tokens generated", lambda engine: engine.generated_tokens),
    ("preemptions", "Preemptions", lambda engine: engine.preemptions),
)


def _engine_values(state: RouterState) -> Iterable[str]:
    told = [
        ({**_of(replica), "engine": replica.reading.engine.engine or "unknown"}, replica.reading)
        for replica in state.replicas
        if replica.reading is not None
    ]
    for name, meaning, value in _GAUGES:
        samples = [(labels, value(reading.engine)) for labels, reading in told]
        yield gauge(f"pointsman_engine_{name}", f"{meaning}, as the engine told it last.", samples)
    for name, meaning, value in _COUNTERS:
        samples = [(labels, value(reading.engine)) for labels, reading in told]
        whole = f"{meaning} since the engine's start, as it told it last."
        yield counter(f"pointsman_engine_{name}_total", whole, samples)
    yield gauge(
        "pointsman_engine_reading_age_seconds",
        "Time since the engine was asked for what it told last.",
        [(labels, reading.age_ms(state.now_ms) / _MS_PER_S) for labels, reading in told],
    )
    yield gauge(
        "pointsman_engine_reading_stale",
        "Whether that is too long ago to go by.",
        [(labels, int(reading.is_stale(state.now_ms))) for labels, reading in told],
    )


def _hearing(state: RouterState) -> Iterable[str]:
    """How asking and listening went."""
    asked = [(r, r.attempts) for r in state.replicas if r.attempts is not None]
    yield counter(
        "pointsman_engine_scrapes_total",
        "Times that the engine was asked for its metrics, by outcome.",
        [
            ({**_of(replica), "outcome": outcome}, count)
            for replica, attempts in asked
            for outcome, count in (("ok", attempts.answers), ("error", attempts.failures))
        ],
    )
    followed = [(r, r.kv) for r in state.replicas if r.kv is not None]
    rows: tuple[tuple[str, str, Callable[[KvCounts], int]], ...] = (
        ("messages", "Messages of KV events", lambda counts: counts.messages),
        ("gaps", "Gaps in the numbers of KV events", lambda counts: counts.gaps),
        ("replayed", "Messages of KV events that a replay brought", lambda counts: counts.replayed),
        ("restarts", "Publishers of KV events that began anew", lambda counts: counts.restarts),
        ("clears", "Times that what a cache holds became unknown", lambda counts: counts.clears),
        ("undecodable", "Messages of KV events not understood", lambda counts: counts.undecodable),
    )
    for name, meaning, value in rows:
        samples = [(_of(replica), sum(map(value, kv))) for replica, kv in followed]
        yield counter(f"pointsman_kv_events_{name}_total", f"{meaning}.", samples)
    yield gauge(
        "pointsman_kv_events_silent",
        "Whether tokens flow and no KV event comes.",
        [(_of(replica), int(replica.kv_is_silent)) for replica, _ in followed],
    )


def _of(replica: ReplicaState) -> Labels:
    return {"replica": replica.url}


def _rows(replicas: Sequence[ReplicaState], row: Sequence[int]) -> Iterable[tuple[Labels, int]]:
    return [(_of(replica), count) for replica, count in zip(replicas, row, strict=True)]


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / _MS_PER_S
