"""The first requests of a workload are the workload that they would be alone."""

from __future__ import annotations

import pytest

from pointsman import workload_of_columns
from pointsman.workload.beginning import beginning
from pointsman.workload.workload import Names

THREE = workload_of_columns(
    [0.0, 1.0, 2.0],
    prompt_tokens=[32, 48, 16],
    output_tokens=[1, 2, 3],
    session=[0, 1, 0],
    chain_start=[0, 2, 5, 6],
    chain_blocks=[0, 1, 0, 1, 2, 3],
    block_size_tokens=16,
    names=Names(requests=("a", "b", "c")),
)


def test_its_rows_blocks_and_names_are_the_first_ones():
    two = beginning(THREE, 2)
    assert len(two) == 2
    assert two.chain(1).tolist() == [0, 1, 2]
    assert two.output_tokens.tolist() == [1, 2]
    assert two.names.requests == ("a", "b")


@pytest.mark.parametrize("count", [3, 9])
def test_a_workload_that_is_no_longer_stays_as_it_is(count):
    assert beginning(THREE, count) is THREE
