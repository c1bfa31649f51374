from __future__ import annotations

import pytest

from pointsman.core.errors import InputError
from pointsman.workload.formats import read_workload
from pointsman.workload.reading import ReadOptions
from tests.workload.refusals import refusal


def row(timestamp: float, prompt: int, ids: list[int]) -> str:
    return (
        f'{{"timestamp": {timestamp}, "input_length": {prompt},'
        f' "output_length": 3, "hash_ids": {ids}}}'
    )


def test_a_block_has_512_tokens_and_a_partial_last_one_is_dropped(read):
    # 1,100 tokens: two whole blocks and 76 tokens.
    workload = read(row(0, 1100, [4, 5, 6]), row(3000, 1024, [4, 5]))
    assert workload.block_size_tokens == 512
    assert workload.chain(0).tolist() == workload.chain(1).tolist() == [0, 1]
    assert workload.prefix_tokens.tolist() == [1024, 1024]
    assert workload.prompt_tokens.tolist() == [1100, 1024]


def test_timestamps_are_ms(read):
    assert read(row(0, 10, [1]), row(2999, 10, [1])).arrival_ms.tolist() == [0.0, 2999.0]


def test_seconds_are_read_as_such_on_request(read):
    workload = read(row(0, 10, [1]), row(1.5, 10, [1]), time_unit="s")
    assert workload.arrival_ms.tolist() == [0.0, 1500.0]


def test_seconds_beyond_the_latest_time_are_refused(read):
    with pytest.raises(
        InputError, match=r"line 1: timestamp is 200000000000000\.0; expected a time of at most"
    ):
        read(row(2e14, 10, [1]), time_unit="s")


def test_other_names_of_the_keys_are_taken(read):
    workload = read('{"timestamp": 5, "input_tokens": 7, "output_tokens": 8, "session_id": "s"}')
    assert workload.prompt_tokens.tolist() == [7]
    assert workload.output_tokens.tolist() == [8]
    assert workload.names.sessions == ("s",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (row(0, 1100, [1]), "hash_ids has 1 ids; expected 3, one for each 512 of 1100 tokens"),
        (row(0, 1100, [1, 2, 3, 4]), "hash_ids has 4 ids; expected 3"),
        (row(-3, 10, [1]), "timestamp is -3; expected a time in ms in 0..1e15"),
        ('{"timestamp": 0, "output_length": 3}', "input_length is missing; expected an integer"),
        (
            '{"timestamp": 0, "input_length": 3, "input_tokens": 3, "output_length": 3}',
            "input_tokens is 3; expected none beside input_length",
        ),
        (
            '{"timestamp": 0, "input_length": 3, "output_length": 3, "hash_ids": [1.5]}',
            "hash_ids[0] is 1.5; expected an integer",
        ),
        (row(0, 600, [3, -1]), "hash_ids[1] is -1; expected an integer >= 0"),
        (
            '{"timestamp": 0, "input_length": 3, "output_lenght": 3}',
            "key 'output_lenght' is unknown; expected one of hash_ids, input_length,",
        ),
    ],
)
def test_a_bad_line_says_where_what_and_what_was_wanted(read, text, message):
    assert refusal(read, row(0, 10, [1]), text).startswith(f"line 2: {message}")


def test_milliseconds_read_as_seconds_are_refused_naming_the_span(read):
    # 120 requests, 3 s apart in truth: 357,000 ms; as seconds 4.1 days.
    rows = [row(3000 * i, 10, [1]) for i in range(120)]
    with pytest.raises(InputError, match=r"spans 4\.1 days when read as s, one request in 3000 s"):
        read(*rows, time_unit="s")


def test_seconds_read_as_milliseconds_are_refused_unless_the_unit_is_given(read):
    # 120 requests in 11.9 units.
    rows = [row(i / 10, 10, [1]) for i in range(120)]
    with pytest.raises(InputError, match=r"spans 11\.9 ms .* 10000 requests a second"):
        read(*rows)
    assert read(*rows, time_unit="ms").span_ms == pytest.approx(11.9)
    assert read(*rows, time_unit="s").span_ms == pytest.approx(11_900)


@pytest.mark.traces
def test_the_public_conversation_trace_is_read_whole(shared):
    workload = read_workload(shared("traces/mooncake_conversation.jsonl"))
    assert len(workload) == 12_031
    assert round(workload.prompt_tokens.mean()) == 12_035
    assert round(workload.output_tokens.mean()) == 343
    assert workload.source.out_of_order == 0


@pytest.mark.traces
def test_the_public_trace_read_as_seconds_is_refused(shared):
    path = shared("traces/mooncake_conversation.jsonl")
    with pytest.raises(InputError, match=r"spans 40\.9 days"):
        read_workload(path, ReadOptions(time_unit="s"))
