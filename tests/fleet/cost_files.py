"""Cost files as ``calibrate --output`` writes them, with figures that one can add up by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ENGINE = {
    "model": "vllm-v1",
    "version": "0.19.0",
    "served_model": "tiny",
    "tensor_parallel": 1,
    "engine_cores": 1,
    "max_num_seqs": 8,
    "max_num_batched_tokens": 1000,
    "kv_blocks": 100,
    "block_size": 16,
    "async_scheduling": False,
}
WIDE = {
    "prompt_tokens": 10_000,
    "output_tokens": 10_000,
    "batch": 1_000,
    "kv_tokens": 1_000_000,
    "rate_rps": 1_000_000,
}


def cost_document(engine: dict[str, Any] | None = None, limits: dict[str, Any] | None = None):
    """An iteration takes 10 ms, 0.1 for each prompt token and 1 for each request that decodes."""
    return {
        "schema": "pointsman.costs/1",
        "costs": {
            "per_iteration_ms": 10.0,
            "per_prefill_token_ms": 0.1,
            "per_decode_ms": 1.0,
            "per_kv_token_ms": 0.0,
            "per_attention_ms": 0.0,
        },
        "shared_blocks": 0.0,
        "engine": {**ENGINE, **(engine or {})},
        "fitted_requests": 300,
        "valid_up_to": {**WIDE, **(limits or {})},
        "residuals": {"loss": 0.1, "mean_absolute": 0.05},
    }


def write_costs(path: Path, **changes: dict[str, Any]) -> Path:
    path.write_text(json.dumps(cost_document(**changes)))
    return path
