"""The lesson on serving replica routing: lists of dicts in, dicts out.

Each function converts at the door and runs the columnar engine: the policies are those of
``pointsman.policies``, the timeline is ``pointsman.sim.fifo``, the figures are
``pointsman.metrics``. Keys, defaults, reasons, orders and every float are the lesson's; what is
added stands under further keys.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from pointsman.core.errors import missing_field, wrong_value
from pointsman.lessons import fields
from pointsman.metrics.service import Served, replica_loads, service_metrics
from pointsman.policies.catalogue import POLICIES
from pointsman.policies.policy import CACHED_TOKENS, FREE_AT_MS, REQUEST, ROWS, Policy
from pointsman.sim.fifo import DEFAULT_CACHE_HIT_SPEEDUP, FifoFleet, Routed, simulate
from pointsman.workload.builder import Row, WorkloadBuilder

STRATEGIES = ("round_robin", "queue_aware", "locality_aware")
DEFAULT_SLACK_MS = 5.0

EMPTY_SUMMARY = {
    "request_count": 0,
    "mean_queue_wait_ms": 0.0,
    "p95_queue_wait_ms": 0.0,
    "p99_queue_wait_ms": 0.0,
    "throughput_requests_per_s": 0.0,
    "cache_hit_rate": 0.0,
    "load_skew_ratio": 0.0,
}


def select_replica(  # noqa: PLR0913 - the lesson's signature
    request: Mapping[str, Any],
    replicas: list[dict[str, Any]],
    strategy: str,
    round_robin_index: int,
    session_owner: Mapping[Any, int],
    locality_slack_ms: float,
) -> tuple[int, str]:
    """Choose a replica for one request; its index and the reason.

    ``request`` needs ``arrival_ms`` (but for ``round_robin``) and may have ``session_id`` and
    ``prefix_key``; a replica needs ``available_at_ms`` and, where a prefix is looked up,
    ``cached_prefixes``. Raises InputError for an unknown strategy, no replicas, a missing or
    wrong value, or a session owner that is no replica.
    """
    policy = _policy(strategy, locality_slack_ms)
    request = fields.mapping(request, "request")
    fleet = fields.rows(replicas, "replicas")
    if not fleet:
        raise wrong_value("routing", "replicas", replicas, "at least one replica")
    row = np.zeros(1, dtype=REQUEST)
    row["sequence"] = fields.turn(round_robin_index, len(fleet))
    view = np.full((ROWS, len(fleet)), np.nan)
    if "queue" in policy.reads:
        row["now_ms"] = fields.number(request, "arrival_ms", "request")
        for index, replica in enumerate(fleet):
            where = f"replicas[{index}]"
            view[FREE_AT_MS, index] = fields.number(replica, "available_at_ms", where)
    if "prefix" in policy.reads:
        row["home"] = _home(request, session_owner, len(fleet))
        view[CACHED_TOKENS] = _holds_prefix(request, fleet)
        row["longest_hit_tokens"] = view[CACHED_TOKENS].max()
    chosen, reason = policy.choose(row[0], view, policy.parameter_values)
    return chosen, policy.reasons[reason]


def simulate_replica_routing(
    requests: list[dict[str, Any]],
    num_replicas: int,
    strategy: str,
    locality_slack_ms: float = DEFAULT_SLACK_MS,
    cache_hit_speedup: float = DEFAULT_CACHE_HIT_SPEEDUP,
) -> list[dict[str, Any]]:
    """Serve the requests in order of arrival; each with where it went, why and when.

    A request needs ``request_id``, ``arrival_ms`` and ``service_ms`` (ms, finite, >= 0) and may
    have ``prefix_key`` and ``session_id``, and tokens, which are only checked; other keys pass
    through. Ties in arrival are ordered by request id as a string. The input is not changed.
    Raises InputError for bad input.
    """
    policy = _policy(strategy, locality_slack_ms)
    fleet = _fleet(num_replicas, cache_hit_speedup)
    given = fields.rows(requests, "requests")
    builder = WorkloadBuilder()
    for index, request in enumerate(given):
        where = f"requests[{index}]"
        builder.add(_row(request, where), where)
    routed = simulate(builder.build(), policy, fleet)
    return _records([given[index] for index in builder.order().tolist()], routed)


def summarize_replica_service(records: list[dict[str, Any]], num_replicas: int) -> dict[str, Any]:
    """Waits, tails, throughput, hit rate and skew of the records of one run.

    A record needs ``replica_id``, ``arrival_ms``, ``finish_ms``, ``queue_wait_ms`` and
    ``cache_hit``. Beside the lesson's keys: P50/P95/P99 of latency, skew by busy time, the
    counts of ``route_reason``, and ``replicas``: requests, tokens and ``busy_ms`` of each. Tokens
    are ``prompt_tokens`` and ``output_tokens`` or, where that is absent, ``generate_tokens``.
    Raises InputError for a missing or wrong value, or a replica that is none.
    """
    given = fields.rows(records, "records")
    if not given:
        return dict(EMPTY_SUMMARY)
    replicas = fields.replica_count(num_replicas)
    served = _served(given, replicas)
    return {
        **asdict(service_metrics(served, replicas)),
        "route_reasons": _reasons(given),
        "replicas": [asdict(load) for load in replica_loads(served, replicas)],
    }


def compare_replica_strategies(
    requests: list[dict[str, Any]], num_replicas: int, locality_slack_ms: float = DEFAULT_SLACK_MS
) -> list[dict[str, Any]]:
    """The three strategies on the same requests, by P95 queue wait, then throughput."""
    comparisons = []
    for strategy in STRATEGIES:
        records = simulate_replica_routing(
            requests, num_replicas, strategy, locality_slack_ms=locality_slack_ms
        )
        metrics = summarize_replica_service(records, num_replicas)
        comparisons.append({"strategy": strategy, "metrics": metrics})
    return sorted(
        comparisons,
        key=lambda item: (
            item["metrics"]["p95_queue_wait_ms"],
            -item["metrics"]["throughput_requests_per_s"],
        ),
    )


def _policy(strategy: str, locality_slack_ms: float) -> Policy:
    policy = POLICIES[fields.strategy_name(strategy, STRATEGIES)]
    slack_ms = fields.ratio(locality_slack_ms, "locality_slack_ms", "routing")
    # An infinite slack is the largest one: no wait is longer.
    slack_ms = min(slack_ms, sys.float_info.max)
    if not policy.parameters:
        return policy
    return replace(policy, parameters={"slack_ms": slack_ms})  # bind takes no infinity


def _fleet(num_replicas: int, cache_hit_speedup: float) -> FifoFleet:
    speedup = fields.checked_number(cache_hit_speedup, "cache_hit_speedup", "fleet")
    return FifoFleet(fields.replica_count(num_replicas), float(speedup))


def _row(request: Mapping[str, Any], where: str) -> Row:
    prefix = fields.key_of(request, "prefix_key", where)
    for key in fields.TOKEN_KEYS:
        if key in request:
            fields.tokens(request, key, where)
    return Row(
        arrival_ms=float(fields.number(request, "arrival_ms", where)),
        request_id=fields.request_name(request, where),
        service_ms=float(fields.number(request, "service_ms", where)),
        session=fields.key_of(request, "session_id", where),
        chain=() if prefix is None else (prefix,),
    )


def _records(ordered: list[Mapping[str, Any]], routed: Routed) -> list[dict[str, Any]]:
    columns = zip(
        ordered,
        routed.replica.tolist(),
        routed.reason.tolist(),
        (routed.cached_tokens > 0).tolist(),
        routed.start_ms.tolist(),
        routed.finish_ms.tolist(),
        routed.queue_wait_ms.tolist(),
        routed.service_ms.tolist(),
        strict=True,
    )
    return [
        {
            **request,
            "replica_id": replica,
            "route_reason": routed.policy.reasons[reason],
            "cache_hit": hit,
            "start_ms": start_ms,
            "finish_ms": finish_ms,
            "queue_wait_ms": queue_wait_ms,
            "effective_service_ms": service_ms,
        }
        for request, replica, reason, hit, start_ms, finish_ms, queue_wait_ms, service_ms in columns
    ]


def _served(records: list[Mapping[str, Any]], replicas: int) -> Served:
    def column(key: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        values = [fields.number(row, key, f"records[{i}]") for i, row in enumerate(records)]
        return np.array(values, dtype=np.float64)

    arrival_ms, finish_ms, waits = (
        column(key) for key in ("arrival_ms", "finish_ms", "queue_wait_ms")
    )
    busy_ms = np.array(
        [
            fields.number(row, "effective_service_ms", f"records[{i}]", default=np.nan)
            for i, row in enumerate(records)
        ],
        dtype=np.float64,
    )
    return Served(
        replica=np.array([_replica_id(row, i, replicas) for i, row in enumerate(records)]),
        arrival_ms=arrival_ms,
        queue_wait_ms=waits,
        finish_ms=finish_ms,
        busy_ms=np.where(np.isnan(busy_ms), finish_ms - arrival_ms - waits, busy_ms),
        hit=np.array([fields.cache_hit(row, f"records[{i}]") for i, row in enumerate(records)]),
        tokens=_tokens(records),
    )


def _replica_id(record: Mapping[str, Any], index: int, replicas: int) -> int:
    where = f"records[{index}]"
    if "replica_id" not in record:
        raise missing_field(where, "replica_id", f"an integer in 0..{replicas - 1}")
    return fields.replica_index(record["replica_id"], "replica_id", where, replicas)


def _tokens(
    records: list[Mapping[str, Any]],
) -> np.ndarray[tuple[int], np.dtype[np.int64]] | None:
    if not any(key in record for record in records for key in fields.TOKEN_KEYS):
        return None
    counts = [_tokens_of(record, f"records[{i}]") for i, record in enumerate(records)]
    return np.array(counts, dtype=np.int64)


def _tokens_of(record: Mapping[str, Any], where: str) -> int:
    prompt, output, generated = (fields.tokens(record, key, where) for key in fields.TOKEN_KEYS)
    return prompt + (output if "output_tokens" in record else generated)


def _reasons(records: list[Mapping[str, Any]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for index, record in enumerate(records):
        if "route_reason" in record:
            reason: Any = fields.key_of(record, "route_reason", f"records[{index}]")
            counts[reason] = counts.get(reason, 0) + 1
    return counts


def _home(request: Mapping[str, Any], session_owner: Mapping[Any, int], replicas: int) -> int:
    session = fields.key_of(request, "session_id", "request")
    owner = fields.owners(session_owner)
    if session not in owner:
        return -1
    name = f"session_owner[{session!r}]"
    return fields.replica_index(owner[session], name, "routing", replicas)


def _holds_prefix(request: Mapping[str, Any], replicas: list[Mapping[str, Any]]) -> list[float]:
    prefix = fields.key_of(request, "prefix_key", "request")
    if prefix is None:
        return [0.0] * len(replicas)
    cached = (
        fields.cached_prefixes(replica, f"replicas[{index}]")
        for index, replica in enumerate(replicas)
    )
    return [1.0 if prefix in prefixes else 0.0 for prefixes in cached]
