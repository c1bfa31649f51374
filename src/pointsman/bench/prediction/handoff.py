"""What a hand-off from prefill to decode is taken to cost."""

from __future__ import annotations

from dataclasses import dataclass

from pointsman.core.checks import check_number
from pointsman.sim.batching import Split

UNKNOWN = "what a hand-off takes is not known before it was measured"
LEFT_OUT = f"{UNKNOWN}: TTFT and E2E are predicted without it"


@dataclass(frozen=True, slots=True)
class Handoff:
    """``base_ms``, then ``kv_bytes_per_token`` of the prompt over one link of ``bytes_per_ms``.

    ``moves_all``: blocks that the decode replica holds are moved too (llama.cpp, shared storage).
    """

    base_ms: float
    bytes_per_ms: float
    kv_bytes_per_token: float
    moves_all: bool = True

    def __post_init__(self) -> None:
        check_number("hand-off", "base_ms", self.base_ms)
        check_number("hand-off", "bytes_per_ms", self.bytes_per_ms, above=0.0)
        check_number("hand-off", "kv_bytes_per_token", self.kv_bytes_per_token)


def split_of(prefills: int, handoff: Handoff | None) -> Split:
    """The simulator's; without a hand-off that is known, one that takes no time."""
    if handoff is None:
        return Split(prefills, kv_bytes_per_token=0.0, bytes_per_ms=1.0)
    return Split(
        prefills,
        kv_bytes_per_token=handoff.kv_bytes_per_token,
        bytes_per_ms=handoff.bytes_per_ms,
        base_ms=handoff.base_ms,
        moves_all=handoff.moves_all,
    )
