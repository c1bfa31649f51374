"""What one iteration of a batching engine takes: five named parameters."""

from __future__ import annotations

from typing import Protocol

import msgspec


class IterationCosts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Linear in what an iteration does; all in ms (docs/simulator.md).

    ``per_attention_ms``: per pair of a prompt token computed and a token before it, half a pair
    for those of its own chunk.
    """

    per_iteration_ms: float
    per_prefill_token_ms: float
    per_decode_ms: float
    per_kv_token_ms: float
    per_attention_ms: float = 0.0


class CostModel(Protocol):
    """Whatever prices the iterations of one replica.

    There are three: the roofline of an instance (``roofline.py``), a recorded engine
    (``calibrated.py``), the lesson's linear proxies (``proxies.py``).
    """

    def iteration_costs(self) -> IterationCosts:
        """The five parameters for this replica."""
