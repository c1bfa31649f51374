"""The lesson's routing rules in plain Python: what the compiled engine is held against.

Columns in, columns out, one replica a dict, nothing clever. Slow on purpose.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Columns(NamedTuple):
    """Requests in order of arrival; None for no prefix or no session."""

    arrival_ms: list[float]
    service_ms: list[float]
    prefix: list[Any]
    session: list[Any]


class Timeline(NamedTuple):
    replica: list[int]
    reason: list[str]
    start_ms: list[float]
    finish_ms: list[float]
    service_ms: list[float]
    hit: list[bool]


def route(
    columns: Columns,
    num_replicas: int,
    strategy: str,
    slack_ms: float = 5.0,
    speedup: float = 0.30,
) -> Timeline:
    replicas = [{"available": 0.0, "prefixes": set()} for _ in range(num_replicas)]
    owner: dict[Any, int] = {}
    timeline = Timeline([], [], [], [], [], [])
    for index, (arrival, service, prefix, session) in enumerate(zip(*columns, strict=True)):
        chosen, reason = choose(
            index, arrival, prefix, session, replicas, owner, strategy, slack_ms
        )
        replica = replicas[chosen]
        start = max(arrival, replica["available"])
        hit = prefix is not None and prefix in replica["prefixes"]
        effective = service * (1.0 - speedup if hit else 1.0)
        finish = start + effective
        timeline.replica.append(chosen)
        timeline.reason.append(reason)
        timeline.start_ms.append(start)
        timeline.finish_ms.append(finish)
        timeline.service_ms.append(effective)
        timeline.hit.append(hit)
        replica["available"] = finish
        if prefix is not None:
            replica["prefixes"].add(prefix)
        if session is not None:
            owner[session] = chosen
    return timeline


def route_records(
    requests: list[dict[str, Any]],
    num_replicas: int,
    strategy: str,
    slack_ms: float = 5.0,
    speedup: float = 0.30,
) -> list[dict[str, Any]]:
    """The same from a list of dicts to a list of dicts, as the lesson has it."""
    replicas = [{"available": 0.0, "prefixes": set()} for _ in range(num_replicas)]
    owner: dict[Any, int] = {}
    records = []
    ordered = sorted(requests, key=lambda request: (request["arrival_ms"], request["request_id"]))
    for index, request in enumerate(ordered):
        arrival = float(request["arrival_ms"])
        prefix, session = request.get("prefix_key"), request.get("session_id")
        chosen, reason = choose(
            index, arrival, prefix, session, replicas, owner, strategy, slack_ms
        )
        replica = replicas[chosen]
        start = max(arrival, replica["available"])
        hit = prefix is not None and prefix in replica["prefixes"]
        service = float(request["service_ms"]) * (1.0 - speedup if hit else 1.0)
        record = dict(request)
        record.update(
            replica_id=chosen,
            route_reason=reason,
            cache_hit=hit,
            start_ms=start,
            finish_ms=start + service,
            queue_wait_ms=start - arrival,
            effective_service_ms=service,
        )
        records.append(record)
        replica["available"] = start + service
        if prefix is not None:
            replica["prefixes"].add(prefix)
        if session is not None:
            owner[session] = chosen
    return records


def choose(index, arrival, prefix, session, replicas, owner, strategy, slack_ms):
    if strategy == "round_robin":
        return index % len(replicas), "round_robin"
    waits = [max(0.0, replica["available"] - arrival) for replica in replicas]
    shortest = min(range(len(replicas)), key=lambda candidate: (waits[candidate], candidate))
    if strategy == "queue_aware":
        return shortest, "shortest_queue"
    limit = waits[shortest] + slack_ms
    home = owner.get(session)
    if home is not None and waits[home] <= limit:
        return home, "sticky_session"
    holders = [
        candidate
        for candidate, replica in enumerate(replicas)
        if prefix is not None and prefix in replica["prefixes"]
    ]
    if holders:
        holder = min(holders, key=lambda candidate: (waits[candidate], candidate))
        if waits[holder] <= limit:
            return holder, "prefix_locality"
    return shortest, "queue_fallback"
