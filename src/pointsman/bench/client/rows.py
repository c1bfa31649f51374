"""What the client saw of each request: one row, whatever became of it.

    intended ─ schedule delay ─ noticed ─ client queue ─ sent
    sent ─ first byte ─ first token, of any channel ─ ... ─ last chunk with choices ─ end

Times are ms since the load began, on one monotonic clock, stamped when the bytes were read and
before they were parsed. Each row has exactly one status, so that they add up to what was offered:

    ok          the whole answer came
    error       no answer, or one that says what is wrong
    rejected    turned away for want of room: 429, or 503 with retry-after
    timeout     the answer was not whole within the limit
    truncated   it broke off after a token
    cancelled   the load was ended before it was, or before it was sent
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from pointsman.core.errors import InputError
from pointsman.core.files import read_file, whole_file

Status = Literal["ok", "error", "rejected", "timeout", "truncated", "cancelled"]
OK: Status = "ok"
ERROR: Status = "error"
REJECTED: Status = "rejected"
TIMEOUT: Status = "timeout"
TRUNCATED: Status = "truncated"
CANCELLED: Status = "cancelled"
STATUSES: tuple[Status, ...] = (OK, ERROR, REJECTED, TIMEOUT, TRUNCATED, CANCELLED)

# Where the number of output tokens is from, the best first.
TokensFrom = Literal["usage", "timings", "tokenizer", "chunks"]


class Row(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One offered request; None is unknown, or did not happen."""

    number: int  # its row in the workload
    request_id: str  # sent as x-request-id
    session: int | None = None
    is_warmup: bool = False  # sent, and left out of every figure
    asked_prompt_tokens: int
    asked_output_tokens: int
    intended_ms: float
    client_queue_ms: float | None = None  # for a place under the cap, or for a connection
    sent_ms: float | None = None  # its bytes were handed to the socket
    first_byte_ms: float | None = None
    first_token_ms: float | None = None  # the first one generated, of any channel
    first_text_ms: float | None = None  # the first one that is no reasoning
    last_token_ms: float | None = None  # the last chunk with choices
    end_ms: float | None = None
    prompt_tokens: int | None = None  # as the server counts, like those below
    output_tokens: int | None = None
    tokens_from: TokensFrom | None = None
    cached_tokens: int | None = None
    engine_prefill_ms: float | None = None  # llama.cpp's prompt_ms and predicted_ms (chunks.py)
    engine_decode_ms: float | None = None
    chunks: int = 0  # that brought tokens
    first_chunk_tokens: int | None = None
    http_status: int | None = None
    finish_reason: str | None = None
    status: Status
    error: str | None = None
    is_coalesced: bool = False  # all tokens came in one read: no time between them was seen
    sends: int = 1  # 2: the connection that it was sent on first had been closed meanwhile
    replica: str | None = None  # as the router's headers say, like all below
    prefill_replica: str | None = None
    reason: str | None = None
    expected_wait_ms: float | None = None
    attempts: int | None = None

    @property
    def schedule_delay_ms(self) -> float | None:
        """How late the client itself was: neither the cap nor a connection held it."""
        if self.sent_ms is None or self.client_queue_ms is None:
            return None
        return self.sent_ms - self.client_queue_ms - self.intended_ms


def write_rows(rows: Iterable[Row], path: Path) -> None:
    """One JSON object a line, whole or not at all."""
    with whole_file(path) as file:
        file.write(msgspec.json.Encoder().encode_lines(list(rows)))


def read_rows(path: Path) -> list[Row]:
    """Rows that ``write_rows`` wrote. Raises InputError naming the line that is none."""
    decode = msgspec.json.Decoder(Row).decode
    rows = []
    for number, line in enumerate(read_file(path).splitlines(), start=1):
        try:
            rows.append(decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InputError(f"{path} line {number}: {error}; expected a client's row") from None
    return rows
