"""Under which names engines tell how long requests waited, and what was handed off.

Data only. A histogram's sum over its count is a mean of a load, and no request's own value; where
an engine tells each request its times in the answer, as llama.cpp does, none is needed.

Sources. vLLM 0.32: ``vllm/v1/metrics/stats.py`` (``update_from_finished_request``: queue wait from
the scheduler's queue to its first step, prefill from there to the first token, preemptions
included) and ``distributed/kv_transfer/kv_connector/v1/nixl/stats.py`` (one transfer a rank, told
by the side that pulls). SGLang: ``python/sglang/srt/observability/metrics_collector.py`` of 0.5.23
and ``disaggregation/prefill.py`` (told by the prefill replica's first rank, in MiB); not run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_MS, _MIB = 1e3, float(1 << 20)


@dataclass(frozen=True, slots=True)
class Histogram:
    """``scale`` makes ms, or bytes, of its unit. ``is_by_rank``: each rank counts its own part."""

    name: str
    scale: float
    is_by_rank: bool = False


@dataclass(frozen=True, slots=True)
class EngineHistograms:
    """What one engine tells; None: it does not."""

    queue_wait_ms: Histogram | None = None
    prefill_ms: Histogram | None = None
    handoff_ms: Histogram | None = None
    handoff_bytes: Histogram | None = None


NOTHING = EngineHistograms()

# By the engine's name in the router's readings (Engine.signals).
HISTOGRAMS: Mapping[str, EngineHistograms] = {
    "vllm": EngineHistograms(
        queue_wait_ms=Histogram("vllm:request_queue_time_seconds", _MS),
        prefill_ms=Histogram("vllm:request_prefill_time_seconds", _MS),
        handoff_ms=Histogram("vllm:nixl_xfer_time_seconds", _MS),
        handoff_bytes=Histogram("vllm:nixl_bytes_transferred", 1.0, is_by_rank=True),
    ),
    # Its prefill_forward is the last chunk's alone.
    "sglang": EngineHistograms(
        queue_wait_ms=Histogram("sglang:queue_time_seconds", _MS),
        handoff_ms=Histogram("sglang:kv_transfer_latency_ms", 1.0),
        handoff_bytes=Histogram("sglang:kv_transfer_total_mb", _MIB),
    ),
}


def names() -> frozenset[str]:
    """Of all histograms of all engines."""
    told = [
        (each.queue_wait_ms, each.prefill_ms, each.handoff_ms, each.handoff_bytes)
        for each in HISTOGRAMS.values()
    ]
    return frozenset(found.name for every in told for found in every if found is not None)
