"""What a request takes before the engine: HTTP, tokenizing, whatever stands between.

Where the engine tells what the prefill took (llama.cpp), it is what a request that is alone takes
beyond that, from its send to its first token. Elsewhere it is fitted:

    TTFT of a request that is alone  =  overhead + iteration + b * uncached + e * uncached^2

The iteration is taken as the fastest token of the run, which is one of a request alone, so that no
fixed part of the first iteration is counted twice.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np

from pointsman.bench.client.rows import Row
from pointsman.bench.prediction.recorded import is_whole
from pointsman.workload.workload import Floats

LEAST_ALONE = 8
_FASTEST = 0.1  # quantile


def overhead_ms(rows: Sequence[Row]) -> float:
    """In ms, at least 0; 0 too where fewer than 8 requests were alone until their first token, or
    these are alike in length and the engine tells nothing."""
    served = [row for row in rows if is_whole(row)]
    alone = _alone(served)
    told = [beyond for row in alone if (beyond := _beyond_prefill_ms(row)) is not None]
    if len(told) >= LEAST_ALONE:
        return max(0.0, statistics.median(told))
    tokens = np.array([_uncached_tokens(row) for row in alone])
    if len(alone) < LEAST_ALONE or np.unique(tokens).size < LEAST_ALONE:
        return 0.0
    ttft_ms = np.array([row.first_token_ms for row in alone]) - [row.sent_ms for row in alone]
    powers = np.column_stack((np.ones(tokens.size), tokens, tokens**2.0))
    # Relative residuals: a long prompt's noise must not bend what a short one starts with.
    weights = 1.0 / ttft_ms
    found = np.linalg.lstsq(powers * weights[:, None], ttft_ms * weights, rcond=None)[0]
    fixed_ms = float(found[0]) - _fastest_token_ms(served)
    return min(max(0.0, fixed_ms), float(ttft_ms.min()) / 2.0)


def _beyond_prefill_ms(row: Row) -> float | None:
    if row.engine_prefill_ms is None or row.first_token_ms is None or row.sent_ms is None:
        return None
    return row.first_token_ms - row.sent_ms - row.engine_prefill_ms


def _alone(rows: Sequence[Row]) -> list[Row]:
    """Those that no other request was in flight with from their send to their first token."""
    sent = np.array([row.sent_ms for row in rows], dtype=np.float64)
    end = np.array([row.last_token_ms for row in rows], dtype=np.float64)
    first = np.array([row.first_token_ms for row in rows], dtype=np.float64)
    return [row for k, row in enumerate(rows) if _met(sent, end, (sent[k], first[k])) == 1]


def _met(sent: Floats, end: Floats, during: tuple[float, float]) -> int:
    since_ms, until_ms = during
    return int(np.count_nonzero((sent <= until_ms) & (end >= since_ms)))


def _uncached_tokens(row: Row) -> int:
    prompt = row.asked_prompt_tokens if row.prompt_tokens is None else row.prompt_tokens
    return prompt - (row.cached_tokens or 0)


def _fastest_token_ms(rows: Sequence[Row]) -> float:
    each = [
        ((row.last_token_ms or 0.0) - (row.first_token_ms or 0.0)) / (row.output_tokens - 1)
        for row in rows
        if row.output_tokens and row.output_tokens > 1
    ]
    return float(np.quantile(each, _FASTEST)) if each else 0.0
