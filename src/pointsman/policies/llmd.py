"""Scores of llm-d's endpoint picker, made of the engines' own gauges."""

from __future__ import annotations

import numpy as np

from pointsman.core.compiled import inlined
from pointsman.policies.policy import (
    CACHED_TOKENS,
    KV_USE,
    WAITING_REQUESTS,
    Parameters,
    Request,
    View,
    policy,
)
from pointsman.policies.ties import one_in

PREFIX_WEIGHT = 0
QUEUE_WEIGHT = 1
KV_WEIGHT = 2
BLOCK_TOKENS = 3
MOST_BLOCKS = 4

PREFIX_AND_LOAD = 0
LOAD = 1

THRESHOLD_REQUESTS = 0

THRESHOLD_DEFAULT = 128.0


@inlined
def _blocks_score(request: Request, parameters: Parameters, cached_tokens: float) -> float:
    """Matched blocks as a fraction of the prompt's; of both only the first ``MOST_BLOCKS``."""
    size = max(1.0, parameters[BLOCK_TOKENS])
    blocks = min(np.floor(request.prompt_tokens / size), parameters[MOST_BLOCKS])
    if blocks <= 0.0:
        return 0.0
    return float(min(np.floor(cached_tokens / size), blocks) / blocks)


@inlined
def _waiting_range(view: View) -> tuple[float, float]:
    least, most = np.inf, -np.inf
    for i in range(view.shape[1]):
        least = min(least, view[WAITING_REQUESTS, i])
        most = max(most, view[WAITING_REQUESTS, i])
    return least, most


@policy(
    rule=(
        "The highest prefix_weight x (matched blocks / blocks of the prompt) + queue_weight x"
        " (longest queue - queue) / (longest - shortest queue; 1 when all are equal) + kv_weight x"
        " (1 - KV use); among equals any. Blocks of block_tokens, the first most_blocks of a prompt"
    ),
    source=(
        "llm-d/llm-d-router @520af47: pkg/epp/config/loader/defaults.go, the scorers prefix,"
        " queuedepth and kvcacheutilization, and the max-score picker"
    ),
    reasons=("prefix_and_load", "load"),
    parameters={
        "prefix_weight": 3.0,
        "queue_weight": 2.0,
        "kv_weight": 2.0,
        "block_tokens": 16.0,
        "most_blocks": 256.0,
    },
    reads=("prefix", "engine", "random"),
)
def llmd_default(request: Request, view: View, parameters: Parameters) -> tuple[int, int]:
    """Theirs guesses tokens from characters and forgets beyond 31,250 blocks a server; ours are
    the view's cached tokens, which never count the last token of a prompt: one of whole blocks
    matches all but one at most. Of equals theirs shuffles or, later, takes turns; ours draws.
    A ``block_tokens`` below 1 counts tokens.
    """
    shortest, longest = _waiting_range(view)
    best, highest, equals, draw = 0, -np.inf, 0, request.random
    for i in range(view.shape[1]):
        queue = 1.0
        if longest > shortest:
            queue = (longest - view[WAITING_REQUESTS, i]) / (longest - shortest)
        score = (
            parameters[PREFIX_WEIGHT] * _blocks_score(request, parameters, view[CACHED_TOKENS, i])
            + parameters[QUEUE_WEIGHT] * queue
            + parameters[KV_WEIGHT] * (1.0 - view[KV_USE, i])
        )
        if score > highest:
            best, highest, equals = i, score, 1
        elif score == highest:
            equals += 1
            taken, draw = one_in(draw, equals)
            if taken:
                best = i
    return best, PREFIX_AND_LOAD if view[CACHED_TOKENS, best] > 0.0 else LOAD


@policy(
    rule=(
        "The highest load score, 1/2 x (1 - waiting requests / threshold_requests), at least 0;"
        " among equals any."
    ),
    source=(
        "llm-d/llm-d-router pkg/epp/framework/plugins/scheduling/scorer/loadaware/load_aware.go,"
        " by itself"
    ),
    reasons=("shortest_queue",),
    parameters={"threshold_requests": THRESHOLD_DEFAULT},
    reads=("engine", "random"),
)
def llmd_load_aware(request: Request, view: View, parameters: Parameters) -> tuple[int, int]:
    """Theirs is one scorer among others; here it decides alone. A threshold of 0 means the default,
    as theirs.
    """
    threshold = parameters[THRESHOLD_REQUESTS]
    if threshold <= 0.0:
        threshold = THRESHOLD_DEFAULT
    best, highest, equals, draw = 0, -np.inf, 0, request.random
    for i in range(view.shape[1]):
        score = 0.5 * (1.0 - min(view[WAITING_REQUESTS, i], threshold) / threshold)
        if score > highest:
            best, highest, equals = i, score, 1
        elif score == highest:
            equals += 1
            taken, draw = one_in(draw, equals)
            if taken:
                best = i
    return best, 0
