"""The mean stages of a request, from the same metrics for what is predicted and what is measured.

    intended arrival ── queue ── prefill ── hand-off ── first token ── decode ── last token
    |--------------------------- TTFT ---------------------------|
    |------------------------------------- E2E -------------------------------------|

Queue is all until an engine takes the request up: client, router, HTTP, waiting. Where prefill and
decode are apart, what the decode replica takes to the first token is in prefill.
"""

from __future__ import annotations

import msgspec

from pointsman.evidence.metrics import Metrics

STAGES = ("queue_ms", "prefill_ms", "handoff_ms", "decode_ms")


class Stages(msgspec.Struct, frozen=True, kw_only=True):
    """Means in ms; None is not known."""

    queue_ms: float | None
    prefill_ms: float | None
    handoff_ms: float | None
    decode_ms: float | None

    def of(self, name: str) -> float | None:
        """The stage under a name."""
        value: float | None = getattr(self, name)
        return value


def stages_of(metrics: Metrics, is_split: bool) -> Stages:
    """What the means leave for each stage; a hand-off takes 0 where there is none to make."""
    handoff_ms = metrics.kv_handoff_ms if is_split else 0.0
    return Stages(
        queue_ms=metrics.queue_wait_ms,
        prefill_ms=_less(metrics.ttft_ms, metrics.queue_wait_ms, handoff_ms),
        handoff_ms=handoff_ms,
        decode_ms=_less(metrics.e2e_ms, metrics.ttft_ms),
    )


def _less(whole: float | None, *parts: float | None) -> float | None:
    for part in parts:
        whole = None if whole is None or part is None else whole - part
    return whole
