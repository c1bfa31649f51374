"""What quantities are called on a page."""

from __future__ import annotations

TITLES = {
    "queue_wait_ms": "queue wait",
    "ttft_ms": "TTFT",
    "tpot_ms": "TPOT",
    "e2e_ms": "E2E",
    "handoff_ms": "hand-off",
    "decode_wait_ms": "wait for decode",
}
