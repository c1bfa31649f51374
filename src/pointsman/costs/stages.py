"""The ledger of one request: prefill, decode, TP and PP communication, KV hand-off.

Linear proxies as the lesson on distributed inference defines them; they rank candidates and do
not predict a GPU. Numbers and arrays both work: the formulas are plain arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

PD_DISAGGREGATED = "pd_disaggregated"

PROMPT_TOKENS_A_COLLECTIVE = 128.0
OUTPUT_TOKENS_A_COLLECTIVE = 64.0


class StageCosts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What each stage costs; the keys of the lesson's ``config``, with defaults.

    The defaults are the lesson's figures for communication and PP, and for prefill and decode
    0.05 ms a token: a round figure for an 8 B model on one data-centre GPU whose batch is full
    (prefill at 20,000 tokens/s; decode at 20,000 tokens/s over all sequences). Measure yours.
    """

    prefill_ms_per_token: float = 0.05
    decode_ms_per_token: float = 0.05
    comm_ms_per_token: float = 0.03
    pipeline_penalty_ms: float = 0.25
    tp_degree: float = 1
    pp_stages: float = 1
    serving_mode: str = "replica"
    kv_bytes_per_token: float = 0.0
    handoff_base_ms: float = 0.0
    handoff_bytes_per_ms: float = 1.0


@dataclass(frozen=True, slots=True)
class Stages:
    """One request's stages in ms (arrays: one entry a request); unrounded."""

    prefill_ms: Any
    decode_ms: Any
    comm_ms: Any
    pipeline_ms: Any
    handoff_bytes: Any
    handoff_ms: Any

    @property
    def total_ms(self) -> Any:
        """All stages, added in the lesson's order."""
        return self.prefill_ms + self.decode_ms + self.comm_ms + self.pipeline_ms + self.handoff_ms


def stages_of(prompt_tokens: Any, output_tokens: Any, costs: StageCosts) -> Stages:
    """Price the stages of a request that computes all of ``prompt_tokens``.

    Give the uncached tokens to price a request with a cached prefix.
    """
    handoff_bytes = prompt_tokens * costs.kv_bytes_per_token
    handoff_ms: Any = 0.0
    if costs.serving_mode == PD_DISAGGREGATED:
        handoff_ms = costs.handoff_base_ms + handoff_bytes / costs.handoff_bytes_per_ms
    return Stages(
        prefill_ms=prompt_tokens * costs.prefill_ms_per_token,
        decode_ms=output_tokens * costs.decode_ms_per_token,
        comm_ms=communication_ms(prompt_tokens, output_tokens, costs),
        pipeline_ms=max(costs.pp_stages - 1, 0) * costs.pipeline_penalty_ms,
        handoff_bytes=handoff_bytes,
        handoff_ms=handoff_ms,
    )


def communication_ms(prompt_tokens: Any, output_tokens: Any, costs: StageCosts) -> Any:
    """Tensor-parallel communication: per extra rank, a collective per 128 prompt tokens and
    per 64 output tokens."""
    return (
        max(costs.tp_degree - 1, 0)
        * costs.comm_ms_per_token
        * (prompt_tokens / PROMPT_TOKENS_A_COLLECTIVE + output_tokens / OUTPUT_TOKENS_A_COLLECTIVE)
    )
