"""A connector that keeps caches in a folder which both replicas see: nothing is passed on.

Source: vLLM 0.32, vllm/distributed/kv_transfer/kv_connector/v1/example_connector.py (once
SharedStorageConnector), run live.
"""

from __future__ import annotations

from pointsman.router.handoff.bodies import Fields, for_prefill
from pointsman.router.handoff.protocol import Legs


class SharedStorage:
    """Prefill, then the plain request."""

    name = "shared_storage"
    moves_all = True
    decodes_alone = True
    reserved = frozenset(("kv_transfer_params",))

    async def hand_over(self, legs: Legs) -> Fields:
        """Prefill, then the request as it came."""
        await legs.prefill(for_prefill(legs.fields))
        return legs.fields
