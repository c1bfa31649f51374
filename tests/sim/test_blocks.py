"""Chains in the blocks of a cache, by token position."""

from __future__ import annotations

import numpy as np
import pytest

from pointsman import InputError, workload_of_columns
from pointsman.sim.blocks import CacheChains, cache_chains


def chains_of(workload, block_size: int) -> list[list[int]]:
    chains: CacheChains = cache_chains(workload, block_size)
    return [
        chains.blocks[start : start + known].tolist()
        for start, known in zip(chains.start, chains.known, strict=True)
    ]


def workload(chains, prompt_tokens, block_size_tokens=16, **columns):
    lengths = [len(chain) for chain in chains]
    return workload_of_columns(
        np.arange(float(len(chains))),
        prompt_tokens=prompt_tokens,
        output_tokens=columns.pop("output_tokens", [1] * len(chains)),
        chain_start=np.concatenate(([0], np.cumsum(lengths))),
        chain_blocks=[block for chain in chains for block in chain],
        block_size_tokens=block_size_tokens,
        **columns,
    )


def test_the_same_block_size_leaves_chains_as_they_are():
    assert chains_of(workload([[0, 1], [0, 2]], [40, 33]), 16) == [[0, 1], [0, 2]]


def test_smaller_blocks_split_each_block_and_keep_what_is_shared():
    first, second = chains_of(workload([[0, 1], [0, 2]], [32, 32]), 8)
    assert len(first) == len(second) == 4
    assert first[:2] == second[:2]
    assert set(first[2:]).isdisjoint(second[2:])


def test_larger_blocks_are_named_by_their_last_part_and_partial_ones_dropped():
    chains = chains_of(workload([[0, 1, 2, 3, 4], [0, 1, 2, 5]], [80, 64]), 32)
    assert chains == [[1, 3], [1, 5]]  # block 4 alone fills no block of 32


def test_a_block_size_that_does_not_fit_the_traces_is_refused():
    with pytest.raises(InputError, match=r"block_size is 24; expected a divisor or a multiple of"):
        cache_chains(workload([[0]], [16]), 24)


def test_a_prefix_key_becomes_as_many_blocks_as_it_covers():
    keyed = workload_of_columns(
        [0.0, 1.0, 2.0, 3.0],
        prompt_tokens=[100, 100, 100, 100],
        output_tokens=[1] * 4,
        chain_start=[0, 1, 2, 2, 3],
        chain_blocks=[0, 1, 0],
        prefix_tokens=[50, 20, 0, 35],
    )
    first, other, none, shorter = chains_of(keyed, 16)
    assert len(first) == 3
    assert shorter == first[:2]
    assert len(other) == 1
    assert other[0] not in first
    assert none == []


def test_the_next_turn_of_a_session_names_the_blocks_that_the_answer_fills():
    # Prompt 32, answer 40: 72 tokens fill four blocks, which the next turn's chain names.
    turns = workload(
        [[0, 1], [0, 1, 2, 3, 4], [7]],
        [32, 80, 16],
        output_tokens=[40, 1, 1],
        session=[0, 0, 1],
    )
    assert chains_of(turns, 16) == [[0, 1, 2, 3], [0, 1, 2, 3, 4], [7]]


def test_a_next_turn_that_begins_otherwise_names_nothing():
    turns = workload([[0, 1], [0, 5, 6, 7]], [32, 64], output_tokens=[40, 1], session=[0, 0])
    assert chains_of(turns, 16) == [[0, 1], [0, 5, 6, 7]]
