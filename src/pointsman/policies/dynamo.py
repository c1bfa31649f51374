"""Dynamo's cost of a worker in KV blocks: prefill to do and blocks in use."""

from __future__ import annotations

import numpy as np

from pointsman.core.compiled import inlined
from pointsman.policies.matches import uncached_tokens
from pointsman.policies.policy import (
    CACHED_TOKENS,
    CONTEXT_TOKENS,
    PENDING_TOKENS,
    REQUESTS,
    Parameters,
    Request,
    View,
    policy,
)
from pointsman.policies.ties import one_in

OVERLAP_WEIGHT = 0
OLD_BLOCK_TOKENS = 1

OVERLAP_CREDIT = 0
CREDIT_DECAY = 1
PREFILL_SCALE = 2
REQUEST_WEIGHT = 3
BLOCK_TOKENS = 4

PREFIX_AND_LOAD = 0
LOAD = 1


@policy(
    rule=(
        "The least overlap_weight x (blocks of prompts to prefill there, this one's uncached ones"
        " included) + (blocks in use there); among equals any. Blocks of block_tokens."
    ),
    source="ai-dynamo/dynamo, router-guide.md as of 0.8; kv_overlap_score_weight is 1",
    reasons=("prefix_and_load", "load"),
    parameters={"overlap_weight": 1.0, "block_tokens": 16.0},
    reads=("prefix", "pending", "context", "random"),
)
def dynamo_kv_old(request: Request, view: View, parameters: Parameters) -> tuple[int, int]:
    """Blocks in use are those of the prompts and answers of all requests there: theirs counts a
    block that requests share once, and no answers by default. The request's own blocks, which it
    needs everywhere, are left out. Temperature 0, their default. A ``block_tokens`` below 1 counts
    tokens.
    """
    size = max(1.0, parameters[OLD_BLOCK_TOKENS])
    best, least, equals, draw = 0, np.inf, 0, request.random
    for i in range(view.shape[1]):
        prefill = view[PENDING_TOKENS, i] + uncached_tokens(request, view, i)
        cost = parameters[OVERLAP_WEIGHT] * (prefill / size) + view[CONTEXT_TOKENS, i] / size
        if cost < least:
            best, least, equals = i, cost, 1
        elif cost == least:
            equals += 1
            taken, draw = one_in(draw, equals)
            if taken:
                best = i
    return best, PREFIX_AND_LOAD if view[CACHED_TOKENS, best] > 0.0 else LOAD


@inlined
def _least_pending(view: View) -> float:
    least = np.inf
    for i in range(view.shape[1]):
        least = min(least, view[PENDING_TOKENS, i])
    return least


@policy(
    rule=(
        "The least prefill_scale x max(0, blocks of prompts to prefill there, all of this one's"
        " included, - credit) + (blocks in use there) + request_weight x (requests there); among"
        " equals any. credit = overlap_credit x (cached blocks) / (1 + credit_decay x (blocks to"
        " prefill beyond the least of any) / (blocks of this prompt)). Blocks of block_tokens."
    ),
    source=(
        "ai-dynamo/dynamo, lib/kv-router/src/scheduling/selector/default.rs @07a6c9c; defaults of"
        " its configuration page for 1.2 and of config.rs"
    ),
    reasons=("prefix_and_load", "load"),
    parameters={
        "overlap_credit": 1.0,
        "credit_decay": 0.0,
        "prefill_scale": 1.0,
        "request_weight": 0.0,
        "block_tokens": 16.0,
    },
    reads=("requests", "prefix", "pending", "context", "random"),
)
def dynamo_kv(request: Request, view: View, parameters: Parameters) -> tuple[int, int]:
    """As ``dynamo_kv_old`` with its defaults. One tier of cache, the device's: the credits for
    host, disk and shared caches have nothing to count here. What is in use is counted as there.
    """
    size = max(1.0, parameters[BLOCK_TOKENS])
    prompt = max(0, request.prompt_tokens)
    own_blocks = max(1.0, np.ceil(prompt / size))
    least_pending = _least_pending(view)
    best, least, equals, draw = 0, np.inf, 0, request.random
    for i in range(view.shape[1]):
        excess = (view[PENDING_TOKENS, i] - least_pending) / size / own_blocks
        decayed = parameters[OVERLAP_CREDIT] / (1.0 + parameters[CREDIT_DECAY] * excess)
        raw = (view[PENDING_TOKENS, i] + prompt) / size
        prefill = max(0.0, raw - decayed * (view[CACHED_TOKENS, i] / size))
        cost = (
            parameters[PREFILL_SCALE] * prefill
            + view[CONTEXT_TOKENS, i] / size
            + parameters[REQUEST_WEIGHT] * view[REQUESTS, i]
        )
        if cost < least:
            best, least, equals = i, cost, 1
        elif cost == least:
            equals += 1
            taken, draw = one_in(draw, equals)
            if taken:
                best = i
    return best, PREFIX_AND_LOAD if view[CACHED_TOKENS, best] > 0.0 else LOAD
