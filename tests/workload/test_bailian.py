from __future__ import annotations

import pytest

from tests.workload.refusals import refusal


def row(chat: int, parent: int, timestamp: float, prompt: int = 20, ids: str = "[1, 2]") -> str:
    return (
        f'{{"chat_id": {chat}, "parent_chat_id": {parent}, "timestamp": {timestamp},'
        f' "input_length": {prompt}, "output_length": 7, "type": "text", "turn": 1,'
        f' "hash_ids": {ids}}}'
    )


def test_timestamps_are_seconds_and_blocks_have_16_tokens(read):
    # 40 tokens: two whole blocks and 8 tokens.
    workload = read(row(159, -1, 61.5, 40, "[8, 9, 4]"), row(160, 159, 62, 32, "[8, 9]"))
    assert workload.arrival_ms.tolist() == [61_500.0, 62_000.0]
    assert workload.block_size_tokens == 16
    assert workload.chain(0).tolist() == workload.chain(1).tolist() == [0, 1]
    assert workload.names.requests == ("159", "160")


def test_a_row_holds_its_whole_context(read):
    workload = read(row(1, -1, 0, 20), row(2, 1, 1, 30))
    assert workload.prompt_tokens.tolist() == [20, 30]


def test_a_session_is_named_by_the_root_of_its_parents(read):
    # 5 <- 7 <- 9 with the rows out of order, and 6 by itself.
    workload = read(row(9, 7, 3), row(6, -1, 1), row(5, -1, 0), row(7, 5, 2))
    assert workload.names.requests == ("5", "6", "7", "9")
    assert workload.session.tolist() == [0, 1, 0, 0]
    assert workload.names.sessions == ("5", "6")


def test_a_parent_outside_the_file_stands_for_the_root(read):
    workload = read(row(10, 3, 0), row(11, 3, 1), row(12, 10, 2), row(13, -1, 3))
    assert workload.names.sessions == ("3", "13")
    assert workload.session.tolist() == [0, 0, 0, 1]


def test_a_row_without_a_parent_is_a_root_and_one_without_ids_has_no_prefix(read):
    workload = read('{"chat_id": 4, "timestamp": 0, "input_length": 9, "output_length": 1}')
    assert workload.names.sessions == ("4",)
    assert workload.chain(0).size == 0


def test_a_chat_among_its_own_parents_is_refused(read):
    assert refusal(read, row(1, 2, 0), row(2, 1, 1)).startswith(
        "chat_id 1 is among its own parents; expected a first turn with parent_chat_id -1"
    )


def test_an_id_used_twice_is_refused_and_left_out_on_request(read):
    rows = row(1, -1, 0), row(1, -1, 1)
    assert refusal(read, *rows) == (
        "line 2: chat_id is 1; expected an id not used before, other than -1"
    )
    assert len(read(*rows, skip_bad=True)) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (row(1, -1, -2), "timestamp is -2; expected a time in s >= 0"),
        (row(1, -1, 0, 50), "hash_ids has 2 ids; expected 4, one for each 16 of 50 tokens"),
        (row(1, -1, 0, 20, "[1, -5]"), "hash_ids[1] is -5; expected an integer >= 0"),
        ('{"chat_id": "a", "timestamp": 0}', "chat_id is 'a'; expected an integer"),
        ('{"chat_id": 1, "parent": 0}', "key 'parent' is unknown;"),
    ],
)
def test_a_bad_line_says_where_what_and_what_was_wanted(read, text, message):
    assert refusal(read, row(8, -1, 0), text).startswith(f"line 2: {message}")


def test_milliseconds_are_refused_naming_the_span_unless_the_unit_is_given(read):
    rows = [row(i, -1, 3000 * i) for i in range(120)]
    assert "timestamp spans 4.1 days when read as s" in refusal(read, *rows)
    assert read(*rows, time_unit="ms").span_ms == 357_000
