"""A workload's size is that of its columns."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pointsman import workload_of_columns


def bytes_of(requests: int, blocks_each: int) -> int:
    workload = workload_of_columns(
        np.arange(float(requests)),
        prompt_tokens=np.full(requests, 16 * blocks_each),
        output_tokens=np.ones(requests),
        chain_start=np.arange(requests + 1) * blocks_each,
        chain_blocks=np.arange(requests * blocks_each),
        block_size_tokens=16,
    )
    columns = (getattr(workload, field.name) for field in dataclasses.fields(workload))
    return sum(column.nbytes for column in columns if isinstance(column, np.ndarray))


@pytest.mark.parametrize("blocks_each", [0, 1, 24, 750])
def test_a_request_takes_a_fixed_number_of_bytes_and_four_a_block(blocks_each):
    """Arrival 8, service 8, prompt 4, output 4, session 4, adapter 4, offset 8, covered 4."""
    extra_offset = 8
    assert bytes_of(100, blocks_each) == 100 * (48 + 4 * blocks_each) + extra_offset
