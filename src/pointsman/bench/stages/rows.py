"""A request's row with its stages, which add up to the time from intended arrival to last token.

    intended ─ client delay ─ sent ─ router ─ queue wait ─ prefill ─ first token ─ decode ─ last
    of a pair:                        ... prefill ─ hand-off ─ decode wait ─ first token ─ decode

Only durations are joined, for client and router have a clock each. The engine's share of the time
to the first token is what the router saw between its choice and the first token, or without a
router what the client saw between its send and the first token; the rest is the router's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from pointsman.bench.client.rows import OK, Row
from pointsman.bench.stages.routed import Routed

LLAMACPP, SHARED_STORAGE = "llamacpp", "shared_storage"  # hand-offs, as ``serve`` names them


class JoinedRow(Row, frozen=True, kw_only=True, gc=False):
    """The client's row, and where its time went; None is unknown, or did not happen.

    ``queue_wait_ms`` is what is left of the engine's share without the prefill that the engine
    told: its HTTP and tokenizer, the wait for a slot and for the batch that is under way, the way
    of the first token back. ``router_ms`` has both ways through the router, what the request waited
    there (``waited_ms``) and its tries that failed. Neither is ever below 0.
    """

    client_delay_ms: float | None = None
    router_ms: float | None = None  # None also without a router
    waited_ms: float | None = None
    queue_wait_ms: float | None = None
    prefill_ms: float | None = None
    is_handed_off: bool = False
    handoff_ms: float | None = None
    handoff_bytes: float | None = None
    fell_back: str | None = None  # why a pair made no hand-off
    decode_wait_ms: float | None = None  # from the end of the hand-off to the first token
    decode_ms: float | None = None

    @property
    def scheduled_ms(self) -> float | None:
        """When an engine took it up, by the client's clock."""
        if self.sent_ms is None or self.queue_wait_ms is None:
            return None
        return self.sent_ms + (self.router_ms or 0.0) + self.queue_wait_ms


@dataclass(frozen=True, slots=True)
class HandOffRule:
    """``is_measured``: whether the log's time and bytes of a hand-off are measured, and not what
    the first token leaves. ``bytes_per_token``: where they are computed of the prompt."""

    is_measured: bool = False
    bytes_per_token: float | None = None


def rule_of(handoff: str | None, kv_bytes_per_token: float | None) -> HandOffRule:
    """That of a protocol; None: none."""
    computed = kv_bytes_per_token if handoff == SHARED_STORAGE else None
    return HandOffRule(handoff == LLAMACPP, computed)


def joined_row(row: Row, routed: Routed | None, has_router: bool, rule: HandOffRule) -> JoinedRow:
    """The row with what the log says of it; without a router ``routed`` is None."""
    found: dict[str, Any] = msgspec.structs.asdict(row)
    if routed is not None:
        found |= _said(found, routed)
        found |= _moved(row, routed, rule)
    if row.status == OK and row.sent_ms is not None:
        found["client_delay_ms"] = row.sent_ms - row.intended_ms
        if row.first_token_ms is not None and row.last_token_ms is not None:
            found["decode_ms"] = row.last_token_ms - row.first_token_ms
            server_ms = row.first_token_ms - row.sent_ms
            if not has_router:
                found |= _alone(server_ms, row.engine_prefill_ms)
            elif routed is not None and routed.first_token_ms is not None:
                engine_ms = min(server_ms, routed.first_token_ms - routed.chosen_ms)
                found["router_ms"] = server_ms - engine_ms
                found |= _of_engine(engine_ms, row, routed, rule)
    return JoinedRow(**{name: _rounded(value) for name, value in found.items()})


def _said(found: dict[str, Any], routed: Routed) -> dict[str, Any]:
    """Of the router's headers those that did not come, and what they do not have."""
    names = ("replica", "prefill_replica", "reason", "attempts")
    lacking = {name: getattr(routed, name) for name in names if found[name] is None}
    return {
        **lacking,
        "waited_ms": routed.waited_ms,
        "is_handed_off": routed.handed_off_ms is not None,
        "fell_back": routed.fell_back,
    }


def _moved(row: Row, routed: Routed, rule: HandOffRule) -> dict[str, Any]:
    if routed.handed_off_ms is None:
        return {}
    if rule.is_measured:
        return {"handoff_ms": routed.handoff_ms, "handoff_bytes": routed.handoff_bytes}
    if rule.bytes_per_token is not None and row.prompt_tokens is not None:
        return {"handoff_bytes": row.prompt_tokens * rule.bytes_per_token}
    return {}


def _of_engine(engine_ms: float, row: Row, routed: Routed, rule: HandOffRule) -> dict[str, Any]:
    """How the engines' share divides."""
    if routed.handed_off_ms is None:
        return _alone(engine_ms, row.engine_prefill_ms)
    return _pair(engine_ms, routed) if rule.is_measured else {}


def _alone(engine_ms: float, told_prefill_ms: float | None) -> dict[str, Any]:
    """One engine did both; so it does where a hand-off was given up."""
    if told_prefill_ms is None:
        return {}
    prefill_ms = min(told_prefill_ms, engine_ms)
    return {"queue_wait_ms": engine_ms - prefill_ms, "prefill_ms": prefill_ms}


def _pair(engine_ms: float, routed: Routed) -> dict[str, Any]:
    """Queue wait and prefill on the prefill replica; the decode replica has the rest."""
    if routed.prefilled_ms is None or routed.handoff_ms is None:
        return {}
    before_ms = min(engine_ms, routed.prefilled_ms - routed.chosen_ms)
    rest_ms = engine_ms - before_ms - routed.handoff_ms
    return {"decode_wait_ms": max(0.0, rest_ms), **_alone(before_ms, routed.engine_prefill_ms)}


def _rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value
