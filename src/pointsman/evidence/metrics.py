"""The eleven metrics that a group must report, and what each of them is.

The names are those of the lesson on distributed inference, step 5; so that they mean one thing, the
definition of each goes into the file beside its value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

import msgspec

MetricName = Literal[
    "ttft_ms",
    "tpot_ms",
    "e2e_ms",
    "throughput_tokens_per_s",
    "p95_ms",
    "p99_ms",
    "queue_wait_ms",
    "kv_handoff_bytes",
    "kv_handoff_ms",
    "peak_memory_mb",
    "success_rate",
]
METRIC_NAMES: tuple[MetricName, ...] = get_args(MetricName)

Amount = Annotated[float, msgspec.Meta(ge=0)]
Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]


class Metrics(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The figures of one group or of one of its repeats; null only with a reason."""

    ttft_ms: Amount | None
    tpot_ms: Amount | None
    e2e_ms: Amount | None
    throughput_tokens_per_s: Amount | None
    p95_ms: Amount | None
    p99_ms: Amount | None
    queue_wait_ms: Amount | None
    kv_handoff_bytes: Amount | None
    kv_handoff_ms: Amount | None
    peak_memory_mb: Amount | None
    success_rate: Fraction | None

    def of(self, name: MetricName) -> float | None:
        """The value under a name."""
        value: float | None = getattr(self, name)
        return value


NO_METRICS = Metrics(
    ttft_ms=None,
    tpot_ms=None,
    e2e_ms=None,
    throughput_tokens_per_s=None,
    p95_ms=None,
    p99_ms=None,
    queue_wait_ms=None,
    kv_handoff_bytes=None,
    kv_handoff_ms=None,
    peak_memory_mb=None,
    success_rate=None,
)


@dataclass(frozen=True, slots=True)
class Definition:
    """What a metric is, and whether less or more of it is better: -1, 1; 0 is not judged."""

    unit: str
    text: str
    better: int


_WEIGHT = "each finished request weighs alike"
DEFINITIONS: dict[MetricName, Definition] = {
    "ttft_ms": Definition(
        "ms", f"mean from intended arrival to the first generated token; {_WEIGHT}", -1
    ),
    "tpot_ms": Definition(
        "ms",
        "mean of (E2E - TTFT) / (n - 1) of n output tokens; each finished request of two tokens or"
        " more weighs alike, one of a single token has none",
        -1,
    ),
    "e2e_ms": Definition("ms", f"mean from intended arrival to the last token; {_WEIGHT}", -1),
    "throughput_tokens_per_s": Definition(
        "tokens/s",
        "output tokens of finished requests over the time from the first intended arrival to the"
        " last finish",
        1,
    ),
    "p95_ms": Definition("ms", "95th percentile of e2e_ms by nearest rank", -1),
    "p99_ms": Definition("ms", "99th percentile of e2e_ms by nearest rank", -1),
    "queue_wait_ms": Definition(
        "ms", f"mean from intended arrival until an engine took the request up; {_WEIGHT}", -1
    ),
    "kv_handoff_bytes": Definition(
        "bytes", f"mean of KV cache moved from prefill to decode; {_WEIGHT}", 0
    ),
    "kv_handoff_ms": Definition("ms", f"mean time of that move; {_WEIGHT}", 0),
    "peak_memory_mb": Definition(
        "MiB", "most memory of all engine processes together, at any instant of any repeat", 0
    ),
    "success_rate": Definition("fraction", "finished over all offered requests", 1),
}
