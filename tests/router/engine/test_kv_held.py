"""How much a cache holds, by what is told to be stored and removed."""

from __future__ import annotations

import random

import pytest

from pointsman.router.engine.kv_held import SAMPLE_BLOCKS, HeldBlocks


def test_what_was_stored_and_not_removed_is_held():
    held = HeldBlocks()
    assert held.store([1, 2, b"three"], 16) == 48
    assert held.remove([b"three", 1]) == 32
    assert held.tokens == 16


def test_a_block_counts_once_until_its_last_copy_is_removed():
    held = HeldBlocks()
    assert held.store([7], 16) == 16
    assert held.store([7, 7], 16) == 0
    assert held.remove([7]) == 0
    assert held.remove([7, 7]) == 16
    assert held.tokens == 0


def test_a_block_that_was_never_told_of_is_not_missed():
    held = HeldBlocks()
    held.store([1], 16)
    assert held.remove([2]) == 0
    assert held.tokens == 16


def test_a_cache_that_was_cleared_holds_nothing_and_can_be_filled_again():
    held = HeldBlocks(sample_blocks=4)
    held.store(range(100), 16)
    held.clear()
    assert (held.tokens, len(held)) == (0, 0)
    assert held.store([1, 2], 16) == 32


@pytest.mark.parametrize("kind", ["counted", "random", "digests"])
def test_of_a_large_cache_a_sample_tells_within_a_tenth(kind):
    draw = random.Random(5)
    blocks = {
        "counted": list(range(60_000)),
        "random": [draw.getrandbits(64) - (1 << 63) for _ in range(60_000)],
        "digests": [draw.randbytes(32) for _ in range(60_000)],
    }[kind]
    held = HeldBlocks()
    came = held.store(blocks, 16)
    assert held.tokens == pytest.approx(60_000 * 16, rel=0.1)
    assert came == pytest.approx(60_000 * 16, rel=0.1)
    gone = held.remove(blocks[:45_000])
    assert held.tokens == pytest.approx(15_000 * 16, rel=0.2)
    assert gone == pytest.approx(45_000 * 16, rel=0.1)
    assert len(held) <= SAMPLE_BLOCKS
