from __future__ import annotations

import pytest

from tests.workload.refusals import refusal

HEADER = "arrived_at,num_prefill_tokens,num_decode_tokens"


def test_arrivals_are_seconds(read):
    workload = read(HEADER, "0.0,4808,10", "0.5,3180,8")
    assert workload.arrival_ms.tolist() == [0.0, 500.0]
    assert workload.prompt_tokens.tolist() == [4808, 3180]
    assert workload.output_tokens.tolist() == [10, 8]


def test_columns_stand_in_any_order_and_sums_are_not_used(read):
    header = "num_decode_tokens,pd_ratio,num_prefill_tokens,num_total_tokens,arrived_at"
    assert read(header, "8,0.5,16,24,1").prompt_tokens.tolist() == [16]


def test_lengths_without_arrivals_are_refused_with_what_to_do(read):
    assert refusal(read, "num_prefill_tokens,num_decode_tokens", "3,4") == (
        "line 1: arrived_at is missing, so this file has lengths and no arrivals;"
        " expected a column arrived_at with times in s: add one"
    )


@pytest.mark.parametrize("column", ["session_id", "block_hash_ids"])
def test_the_columns_of_frontier_are_refused(read, column):
    text = refusal(read, f"{HEADER},{column}", "0,3,4,x")
    assert text.startswith(f"line 1: column '{column}' is Frontier's and not read;")


def test_a_bad_time_is_refused(read):
    assert refusal(read, HEADER, "soon,3,4") == (
        "line 2: arrived_at is 'soon'; expected a time >= 0"
    )


def test_milliseconds_are_refused_naming_the_span_unless_the_unit_is_given(read):
    rows = [f"{3000 * i},10,5" for i in range(120)]
    assert refusal(read, HEADER, *rows) == (
        "arrived_at spans 4.1 days when read as s, one request in 3000 s;"
        " expected --time-unit s or ms to say what it is"
    )
    assert read(HEADER, *rows, time_unit="ms").span_ms == 357_000
    assert read(HEADER, *rows, time_unit="s").span_ms == 357_000_000
