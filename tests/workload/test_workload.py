from __future__ import annotations

import pytest

from pointsman.core.errors import InputError
from pointsman.workload.workload import workload_of_columns

CHAIN = {"chain_start": [0, 3], "chain_blocks": [0, 1, 2], "block_size_tokens": 16}


def refusal(arrival_ms, **columns) -> str:
    with pytest.raises(InputError) as caught:
        workload_of_columns(arrival_ms, **columns)
    return str(caught.value)


@pytest.mark.parametrize("prompt_tokens", [-1, 100])
def test_a_chain_covers_whole_blocks_unless_its_tokens_are_given(prompt_tokens):
    workload = workload_of_columns(
        [0.0], service_ms=[1.0], prompt_tokens=[prompt_tokens], output_tokens=[1], **CHAIN
    )
    assert workload.prefix_tokens.tolist() == [48]
    assert workload.chain_lengths.tolist() == [3]


def test_a_chain_that_covers_no_more_than_its_blocks_before_the_last_is_refused():
    assert refusal([0.0], service_ms=[1.0], prefix_tokens=[32], **CHAIN) == (
        "workload row 0: prefix_tokens is 32;"
        " expected more than the whole blocks of 16 before the last one"
    )
    # Given by the prompt: 10 tokens have no room for three blocks of 16.
    assert "prefix_tokens is 10" in refusal([0.0], prompt_tokens=[10], output_tokens=[0], **CHAIN)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"arrival_ms": [2e15], "service_ms": [1.0]}, "arrival_ms is 2000000000000000.0; expected"),
        ({"arrival_ms": [0.0], "service_ms": [2e15]}, "service_ms is 2000000000000000.0; expected"),
    ],
)
def test_times_that_no_file_may_hold_are_refused(columns, message):
    assert message in refusal(**columns)
    assert refusal(**columns).endswith("expected a time in ms in 0..1e+15")


@pytest.mark.parametrize("size", [0, 2**31])
def test_a_block_size_out_of_range_is_refused(size):
    assert refusal([0.0], service_ms=[1.0], block_size_tokens=size) == (
        f"workload: block_size_tokens is {size}; expected an integer in 1..2147483647"
    )


def test_whole_blocks_of_more_tokens_than_a_column_holds_are_refused():
    chain = CHAIN | {"block_size_tokens": 2**30}
    assert "prefix_tokens is 3221225472" in refusal([0.0], service_ms=[1.0], **chain)


@pytest.mark.parametrize("tokens", [2**32 + 5, 1.5])
def test_a_value_that_its_column_cannot_hold_is_refused_not_changed(tokens):
    assert refusal([0.0], prompt_tokens=[tokens], output_tokens=[1]).startswith(
        f"workload row 0: prompt_tokens is {tokens}; expected an integer in"
    )
