"""A request's row, from the exchange that it was and from what our router's headers say of it."""

from __future__ import annotations

import math
from typing import Any

from pointsman.bench.client.answer import Answer
from pointsman.bench.client.connection import Headers
from pointsman.bench.client.exchange import Exchange
from pointsman.bench.client.rows import CANCELLED, Row


def row_of(exchange: Exchange | None, *, noticed_ms: float, error: str | None, **asked: Any) -> Row:
    """The row; without an exchange it was never sent. ``asked`` are fields of Row."""
    if exchange is None or exchange.status is None:
        return Row(status=CANCELLED, error=error, sends=0, **asked)
    sent_ms = exchange.sent_ms
    return Row(
        status=exchange.status,
        error=exchange.error,
        client_queue_ms=None if sent_ms is None else round(sent_ms - noticed_ms, 4),
        sent_ms=_rounded(sent_ms),
        first_byte_ms=_rounded(exchange.first_byte_ms),
        end_ms=_rounded(exchange.end_ms),
        http_status=exchange.http_status,
        sends=exchange.sends,
        **(_of_answer(exchange.answer) if exchange.answer is not None else {}),
        **_of_router(exchange.headers),
        **asked,
    )


def _of_answer(answer: Answer) -> dict[str, Any]:
    return {
        "first_token_ms": _rounded(answer.first_token_ms),
        "first_text_ms": _rounded(answer.first_text_ms),
        "last_token_ms": _rounded(answer.last_ms),
        "prompt_tokens": answer.prompt_tokens,
        "output_tokens": answer.output_tokens,
        "tokens_from": answer.tokens_from,
        "cached_tokens": answer.cached_tokens,
        "engine_prefill_ms": answer.engine_prefill_ms,
        "engine_decode_ms": answer.engine_decode_ms,
        "chunks": answer.chunks,
        "first_chunk_tokens": answer.first_chunk_tokens,
        "finish_reason": answer.finish_reason,
        "is_coalesced": answer.is_coalesced,
    }


def _of_router(headers: Headers) -> dict[str, Any]:
    """Nothing where the answer came from an engine itself."""
    attempts = headers.get(b"x-pointsman-attempts")
    replica = _text(headers, b"x-pointsman-replica")
    return {
        "replica": replica,
        "prefill_replica": _text(headers, b"x-pointsman-prefill"),
        "reason": _text(headers, b"x-pointsman-reason"),
        "expected_wait_ms": _number(headers.get(b"x-pointsman-expected-wait-ms")),
        # The router says how many only where it was more than one.
        "attempts": int(attempts) if attempts and attempts.isdigit() else 1 if replica else None,
    }


def _text(headers: Headers, name: bytes) -> str | None:
    value = headers.get(name)
    return None if value is None else value.decode("latin-1")


def _number(value: bytes | None) -> float | None:
    try:
        number = float(value) if value is not None else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _rounded(at_ms: float | None) -> float | None:
    return None if at_ms is None else round(at_ms, 4)
