"""A workload's chains in the blocks of a cache, and the ids of the blocks that answers fill."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from pointsman.core.compiled import kernel
from pointsman.core.errors import wrong_value
from pointsman.workload.workload import Ints, Longs, Workload


class CacheChains(NamedTuple):
    """Chains by position: the blocks of request i begin at ``start[i]`` in ``blocks``.

    ``prompt`` of them are full of its prompt; ``known`` are those that prompt and answer together
    fill and whose ids some later turn tells.
    """

    start: Longs
    prompt: Ints
    known: Ints
    blocks: Ints


def cache_chains(workload: Workload, block_size: int, names_answers: bool = True) -> CacheChains:
    """Re-block the chains by token position and let the next turn of a session name answers,
    unless it sends none back.

    A prefix key is taken as that many blocks of its own. Raises InputError where the trace's block
    size is neither a multiple nor a divisor of ``block_size``.
    """
    starts, blocks = _reblocked(workload, block_size)
    lengths = np.diff(starts)
    prompt = np.minimum(lengths, np.maximum(workload.prompt_tokens, 0) // block_size)
    begin, known = starts[:-1].copy(), prompt.astype(np.int64)
    if names_answers and workload.session_count and blocks.size:
        totals = np.maximum(workload.prompt_tokens, 0) + np.maximum(workload.output_tokens, 0)
        filled = totals.astype(np.int64) // block_size
        next_turn = _next_turns(workload.session)
        _name_answers(next_turn, (known.copy(), filled), (starts, blocks), begin, known)
    return CacheChains(begin, prompt.astype(np.int32), known.astype(np.int32), blocks)


def _reblocked(workload: Workload, block_size: int) -> tuple[Longs, Ints]:
    given = workload.block_size_tokens
    starts, blocks = workload.chain_start, workload.chain_blocks
    covered = workload.prefix_tokens.astype(np.int64)
    lengths = np.diff(starts)
    keyed = lengths.max(initial=0) <= 1 and given == 1
    if keyed:
        return _of_keys(starts, blocks, covered // block_size)
    if given == block_size or not blocks.size:
        return starts, blocks
    if given % block_size == 0:
        return _smaller(starts, blocks, given // block_size)
    if block_size % given == 0:
        return _larger(starts, blocks, block_size // given)
    raise wrong_value(
        "cache", "block_size", block_size, f"a divisor or a multiple of the trace's {given} tokens"
    )


def _of_keys(starts: Longs, keys: Ints, counts: Longs) -> tuple[Longs, Ints]:
    """Key k becomes the blocks base[k], base[k] + 1, ... as many as the row covers."""
    counts = np.where(np.diff(starts) > 0, counts, 0)
    if not keys.size:
        return np.zeros_like(starts), keys
    rows = np.flatnonzero(np.diff(starts) > 0)
    longest = np.zeros(int(keys.max()) + 1, dtype=np.int64)
    np.maximum.at(longest, keys, counts[rows])
    bases = np.concatenate(([0], np.cumsum(longest)[:-1]))
    new_starts = np.concatenate(([0], np.cumsum(counts)))
    places = np.arange(new_starts[-1]) - np.repeat(new_starts[:-1], counts)
    first = np.zeros(counts.shape[0], dtype=np.int64)
    first[rows] = bases[keys]
    return new_starts, (np.repeat(first, counts) + places).astype(np.int32)


def _smaller(starts: Longs, blocks: Ints, parts: int) -> tuple[Longs, Ints]:
    pieces = blocks.astype(np.int64)[:, None] * parts + np.arange(parts)
    return starts * parts, pieces.reshape(-1).astype(np.int32)


def _larger(starts: Longs, blocks: Ints, parts: int) -> tuple[Longs, Ints]:
    """Of each group of blocks the last one stands for all: its id says what comes before."""
    lengths = np.diff(starts) // parts
    new_starts = np.concatenate(([0], np.cumsum(lengths)))
    places = np.arange(new_starts[-1]) - np.repeat(new_starts[:-1], lengths)
    return new_starts, blocks[np.repeat(starts[:-1], lengths) + (places + 1) * parts - 1]


def _next_turns(session: Ints) -> Longs:
    """The next request of each one's session; -1 for none."""
    order = np.argsort(session, kind="stable")
    before, after = order[:-1], order[1:]
    same = (session[before] == session[after]) & (session[after] >= 0)
    next_turn = np.full(session.shape[0], -1, dtype=np.int64)
    next_turn[before[same]] = after[same]
    return next_turn


_LONGS = types.Array(types.int64, 1, "C")
_INTS = types.Array(types.int32, 1, "C")
_TWO_LONGS, _CHAINS = types.UniTuple(_LONGS, 2), types.Tuple((_LONGS, _INTS))


@kernel(types.void(_LONGS, _TWO_LONGS, _CHAINS, _LONGS, _LONGS))
def _name_answers(
    next_turn: Longs,
    lengths: tuple[Longs, Longs],
    chains: tuple[Longs, Ints],
    begin: Longs,
    known: Longs,
) -> None:
    """Where the next turn's chain begins with this one's, its ids name what the answer fills.

    ``lengths``: blocks that the prompt fills, and that prompt and answer fill.
    """
    (prompt, filled), (starts, blocks) = lengths, chains
    for i in range(next_turn.shape[0]):
        j = next_turn[i]
        if j < 0 or prompt[j] < prompt[i]:
            continue
        same = True
        for place in range(prompt[i]):
            if blocks[starts[j] + place] != blocks[starts[i] + place]:
                same = False
        if same:
            known[i] = min(filled[i], prompt[j])
            begin[i] = starts[j]
