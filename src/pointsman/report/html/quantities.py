"""What quantities are called on a page."""

from __future__ import annotations

TITLES = {
    "queue_wait_ms": "queue wait",
    "ttft_ms": "TTFT",
    "tpot_ms": "TPOT",
    "e2e_ms": "E2E",
    "handoff_ms": "hand-off",
    "seat_wait_ms": "wait for a seat on the decode replica",
}
