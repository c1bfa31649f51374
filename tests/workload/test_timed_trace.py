from __future__ import annotations

import pytest

from pointsman.workload.formats import read_workload
from pointsman.workload.reading import ReadOptions
from tests.workload.refusals import refusal

FORMAT = "vllm_timed_trace"


def row(timestamp: float, prompt: int, ids: list[int]) -> str:
    return (
        f'{{"timestamp": {timestamp}, "input_length": {prompt},'
        f' "output_length": 3, "hash_ids": {ids}}}'
    )


def test_timestamps_are_seconds_and_blocks_have_16_tokens(read):
    # 40 tokens: two whole blocks and 8 tokens.
    workload = read(row(0, 40, [4, 5, 6]), row(1.5, 32, [4, 5]), format=FORMAT)
    assert workload.arrival_ms.tolist() == [0.0, 1500.0]
    assert workload.block_size_tokens == 16
    assert workload.chain(0).tolist() == workload.chain(1).tolist() == [0, 1]
    assert workload.prefix_tokens.tolist() == [32, 32]


def test_it_is_never_guessed_since_its_keys_are_mooncakes(read):
    workload = read(row(0, 10, [1]), row(1.5, 10, [1]))
    assert workload.source.format == "mooncake"
    assert workload.arrival_ms.tolist() == [0.0, 1.5]


def test_block_size_and_unit_are_vllms_flags(read):
    workload = read(
        row(3000, 1100, [4, 5, 6]), format=FORMAT, block_size_tokens=512, time_unit="ms"
    )
    assert workload.arrival_ms.tolist() == [3000.0]
    assert workload.prefix_tokens.tolist() == [1024]


@pytest.mark.parametrize("ids", [[], [7], [7, 8]])
def test_a_prompt_is_as_long_as_its_input_length_whatever_its_ids(read, ids):
    assert read(row(0, 20, ids), format=FORMAT).prompt_tokens.tolist() == [20]


def test_a_mooncake_file_is_refused_by_the_length_of_its_lists(read):
    assert refusal(read, row(0, 6758, list(range(14))), format=FORMAT) == (
        "line 1: hash_ids has 14 ids; expected 423, one for each 16 of 6758 tokens"
        " (--block-size says how many tokens a block has)"
    )


def test_milliseconds_are_refused_naming_the_span_unless_the_unit_is_given(read):
    rows = [row(3000 * i, 10, [1]) for i in range(120)]
    assert refusal(read, *rows, format=FORMAT) == (
        "timestamp spans 4.1 days when read as s, one request in 3000 s;"
        " expected --time-unit s or ms to say what it is"
    )
    assert read(*rows, format=FORMAT, time_unit="ms").span_ms == 357_000
    assert read(*rows, format=FORMAT, time_unit="s").span_ms == 357_000_000


def test_a_bad_line_says_where_what_and_what_was_wanted(read):
    assert refusal(read, row(-1, 10, [1]), format=FORMAT) == (
        "line 1: timestamp is -1; expected a time in s >= 0"
    )
    assert "hash_ids[0] is -1; expected an integer >= 0" in refusal(
        read, row(0, 10, [-1]), format=FORMAT
    )


@pytest.mark.traces
def test_the_public_mooncake_trace_is_read_alike_with_its_unit_and_block_size(shared):
    path = shared("traces/mooncake_conversation.jsonl")
    options = ReadOptions(format=FORMAT, time_unit="ms", block_size_tokens=512)
    as_timed, plain = read_workload(path, options), read_workload(path)
    assert as_timed.arrival_ms.tolist() == plain.arrival_ms.tolist()
    assert as_timed.prompt_tokens.tolist() == plain.prompt_tokens.tolist()
    assert as_timed.chain_blocks.tolist() == plain.chain_blocks.tolist()
