"""The lesson's linear proxies as costs of a batching engine."""

from __future__ import annotations

from dataclasses import dataclass

from pointsman.costs.iteration import IterationCosts
from pointsman.costs.stages import StageCosts, communication_ms

# The simulator's clock must move with each iteration; a microsecond, where the proxies have none.
LEAST_ITERATION_MS = 0.001


@dataclass(frozen=True, slots=True)
class ProxyCosts:
    """``StageCosts`` as a cost model.

    =========================  ====================================================================
    per_prefill_token_ms       ``prefill_ms_per_token``, and the communication of a prompt token
    per_decode_ms              ``decode_ms_per_token``, and the communication of an output token
    per_iteration_ms           ``pipeline_penalty_ms`` an extra stage, at least a microsecond
    per_kv_token_ms, per_attention_ms   0: the lesson's time does not depend on the context
    the hand-off               no part of an iteration (``handoff.py``)
    =========================  ====================================================================

    What differs from the lesson's ledger: an iteration with a prompt's end generates the first
    token without a decode step, so that a request pays ``output_tokens - 1`` of them; and the
    lesson charges the pipeline once a request, this once an iteration, each of which passes it.
    """

    stages: StageCosts

    def iteration_costs(self) -> IterationCosts:
        """The five parameters of the mapping above."""
        stages = self.stages
        pipeline_ms = max(stages.pp_stages - 1, 0) * stages.pipeline_penalty_ms
        return IterationCosts(
            per_iteration_ms=max(pipeline_ms, LEAST_ITERATION_MS),
            per_prefill_token_ms=stages.prefill_ms_per_token + communication_ms(1, 0, stages),
            per_decode_ms=stages.decode_ms_per_token + communication_ms(0, 1, stages),
            per_kv_token_ms=0.0,
        )
