"""A trace played several times over."""

from __future__ import annotations

import pytest

from pointsman import InputError, workload_of_columns
from pointsman.workload.repeat import repeated


def small():
    """Three requests 10 ms apart on the mean; two share a block; one has no session."""
    return workload_of_columns(
        [5.0, 10.0, 25.0],
        prompt_tokens=[20, 40, 7],
        output_tokens=[3, 4, 5],
        session=[0, -1, 1],
        chain_start=[0, 1, 3, 3],
        chain_blocks=[0, 0, 1],
        block_size_tokens=16,
        priority=[1, 2, 3],
    )


def test_rounds_follow_each_other_a_mean_gap_apart():
    assert repeated(small(), 3).arrival_ms.tolist() == [5, 10, 25, 35, 40, 55, 65, 70, 85]


def test_each_round_has_prefixes_and_sessions_of_its_own():
    twice = repeated(small(), 2)
    assert [twice.chain(i).tolist() for i in range(6)] == [[0], [0, 1], [], [2], [2, 3], []]
    assert twice.session.tolist() == [0, -1, 1, 2, -1, 3]
    assert twice.block_count == 4


def test_all_else_is_as_it_was():
    once, twice = small(), repeated(small(), 2)
    for name in ("prompt_tokens", "output_tokens", "prefix_tokens", "priority"):
        assert getattr(twice, name).tolist() == 2 * getattr(once, name).tolist()
    assert twice.block_size_tokens == 16
    assert repeated(once, 1) is once


@pytest.mark.parametrize("times", [0, -1, 1.5, True])
def test_it_is_played_a_whole_number_of_times(times):
    with pytest.raises(InputError, match="times is"):
        repeated(small(), times)
