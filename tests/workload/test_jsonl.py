from __future__ import annotations

import pytest

from pointsman.core.errors import InputError
from pointsman.workload.formats import read_workload
from pointsman.workload.reading import ReadOptions

HEADER = '{"pointsman": 1, "block_size_tokens": 16}\n'


@pytest.fixture
def read(tmp_path):
    def read(text: str, **options):
        path = tmp_path / "t.jsonl"
        path.write_text(text)
        return read_workload(path, ReadOptions(**options))

    return read


def refusal(read, text: str, **options) -> str:
    """The message without the path."""
    with pytest.raises(InputError) as caught:
        read(text, **options)
    return str(caught.value).partition("t.jsonl")[2].strip()


def test_the_lessons_rows_are_sorted_by_arrival_then_by_id_as_text(read):
    workload = read(
        '{"request_id": 9, "arrival_ms": 5, "service_ms": 1}\n'
        '{"request_id": 10, "arrival_ms": 5, "service_ms": 2}\n'
        '{"request_id": "a", "arrival_ms": 0.5, "service_ms": 3}\n'
    )
    assert workload.names.requests == ("a", "10", "9")
    assert workload.service_ms.tolist() == [3.0, 2.0, 1.0]
    assert workload.source.out_of_order == 1


def test_generate_tokens_is_another_name_of_output_tokens(read):
    workload = read('{"arrival_ms": 0, "prompt_tokens": 128, "generate_tokens": 64}\n')
    assert workload.output_tokens.tolist() == [64]


def test_without_ids_the_row_number_stands_in(read):
    workload = read('{"arrival_ms": 0, "service_ms": 1}\n{"arrival_ms": 1, "service_ms": 1}\n')
    assert workload.names.requests is None
    assert workload.names.request(1) == "1"


def test_a_key_that_is_null_is_absent(read):
    workload = read('{"arrival_ms": 0, "service_ms": 1, "prefix_key": null, "session_id": null}\n')
    assert workload.session.tolist() == [-1]
    assert workload.chain(0).tolist() == []


def test_a_prefix_key_covers_the_whole_prompt_unless_the_row_says_less(read):
    row = '{"arrival_ms": 0, "prompt_tokens": 100, "output_tokens": 1, "prefix_key": "k"%s}\n'
    assert read(row % "").prefix_tokens.tolist() == [100]
    assert read(row % ', "prefix_tokens": 60').prefix_tokens.tolist() == [60]


def test_a_prefix_key_of_a_row_without_a_length_covers_one_token(read):
    workload = read('{"arrival_ms": 0, "service_ms": 1, "prefix_key": "k"}\n')
    assert workload.prefix_tokens.tolist() == [1]


def test_ids_that_read_the_same_are_the_same(read):
    row = '{"arrival_ms": %d, "service_ms": 1, "prefix_key": %s}\n'
    workload = read(row % (0, "7") + row % (1, '"7"') + row % (2, '"x"'))
    assert workload.chain_blocks.tolist() == [0, 0, 1]
    assert workload.names.blocks == ("7", "x")


def test_block_ids_that_read_the_same_are_the_same(read):
    row = '{"arrival_ms": %d, "service_ms": 1, "block_ids": %s}\n'
    big = 10**20
    workload = read(
        HEADER
        + row % (0, f"[7, 8, {big}]")
        + row % (1, f'["7", "08", "{big}"]')
        + row % (2, '[7, "8", "x"]')
    )
    assert [workload.chain(row).tolist() for row in range(3)] == [[0, 1, 2], [0, 3, 2], [0, 1, 4]]
    assert workload.names.blocks == ("7", "8", str(big), "08", "x")


def test_only_whole_blocks_count(read):
    # 40 tokens fill two blocks of 16; the third one is partial.
    row = '{"arrival_ms": 0, "prompt_tokens": 40, "output_tokens": 1, "block_ids": ["a", 5, "c"]}\n'
    workload = read(HEADER + row)
    assert workload.names.blocks == ("a", "5")
    assert workload.prefix_tokens.tolist() == [32]
    assert workload.block_size_tokens == 16


def test_a_last_block_that_is_full_stays(read):
    row = '{"arrival_ms": 0, "prompt_tokens": 32, "output_tokens": 1, "block_ids": [8, 9]}\n'
    assert read(HEADER + row).chain(0).tolist() == [0, 1]


def test_without_a_prompt_length_all_blocks_are_whole(read):
    row = '{"arrival_ms": 0, "service_ms": 1, "block_ids": [8, 9, 10]}\n'
    assert read(HEADER + row).prefix_tokens.tolist() == [48]


def test_a_chain_never_covers_less_than_a_part_of_it(read):
    # 48 of the first three blocks would be cached of a prompt of 10.
    row = (
        '{"arrival_ms": 0, "prompt_tokens": 10, "output_tokens": 0,'
        ' "block_ids": [1, 2, 3, 4, 5], "prefix_tokens": 5}\n'
    )
    assert refusal(read, HEADER + row) == (
        "line 2: 5 blocks of 16 tokens cover 5; expected more than the 64 of all but the last block"
    )


@pytest.mark.parametrize(("covered", "good"), [(16, False), (17, True), (32, True)])
def test_of_a_stated_prefix_all_blocks_but_the_last_are_whole(read, covered, good):
    row = '{"arrival_ms": 0, "service_ms": 1, "block_ids": [1, 2], "prefix_tokens": %d}\n'
    row %= covered
    if good:
        assert read(HEADER + row).prefix_tokens.tolist() == [covered]
    else:
        assert "2 blocks of 16 tokens cover 16;" in refusal(read, HEADER + row)


def test_blocks_of_more_tokens_than_a_prompt_can_have_are_refused(read):
    row = '{"arrival_ms": 0, "service_ms": 1, "block_ids": [1, 2, 3]}\n'
    assert refusal(read, row, block_size_tokens=2**30) == (
        "line 1: 3 blocks of 1073741824 tokens; expected at most 2147483647 tokens"
    )


def test_a_key_of_a_prompt_without_tokens_covers_none(read):
    row = '{"arrival_ms": 0, "prompt_tokens": 0, "output_tokens": 1, "prefix_key": "k"}\n'
    assert read(row).prefix_tokens.tolist() == [0]


def test_block_ids_without_a_block_size_are_refused_even_when_bad_lines_are_left_out(read):
    row = '{"arrival_ms": 0, "prompt_tokens": 32, "output_tokens": 1, "block_ids": [8, 9]}\n'
    expected = (
        "line 1: block_ids without a block size; expected the first line"
        ' {"pointsman": 1, "block_size_tokens": 16}, or --block-size (block_size_tokens in Python)'
    )
    assert refusal(read, row) == expected
    assert refusal(read, row, skip_bad=True) == expected
    assert read(row, block_size_tokens=16).block_size_tokens == 16


def test_more_blocks_than_the_prompt_has_room_for_are_refused(read):
    row = '{"arrival_ms": 0, "prompt_tokens": 17, "output_tokens": 1, "block_ids": [1, 2, 3]}\n'
    assert refusal(read, HEADER + row) == (
        "line 2: block_ids has 3 ids; expected at most 2, one for each 16 of 17 tokens"
    )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            '{"arrival_ms": -1, "service_ms": 1}',
            "arrival_ms is -1; expected a time in ms in 0..1e15",
        ),
        ('{"arrival_ms": NaN, "service_ms": 1}', "arrival_ms is nan; expected a time in ms"),
        ('{"arrival_ms": 1e999, "service_ms": 1}', "arrival_ms is inf; expected a time in ms"),
        ('{"arrival_ms": 0, "service_ms": Infinity}', "service_ms is inf; expected a time in ms"),
        ('{"arrival_ms": "1", "service_ms": 1}', "arrival_ms is '1'; expected a time in ms"),
        ('{"arrival_ms": null, "service_ms": 1}', "arrival_ms is None; expected a time in ms"),
        ('{"service_ms": 1}', "arrival_ms is missing; expected a time in ms in 0..1e15"),
        ('{"arrival_ms": 0}', "prompt_tokens is missing; expected an integer in 0..2147483647, or"),
        ('{"arrival_ms": 0, "prompt_tokens": 4}', "output_tokens is missing; expected an integer"),
        (
            '{"arrival_ms": 0, "prompt_tokens": true, "output_tokens": 1}',
            "prompt_tokens is True; expected an integer in 0..2147483647",
        ),
        (
            '{"arrival_ms": 0, "prompt_tokens": 3000000000, "output_tokens": 1}',
            "prompt_tokens is 3000000000; expected an integer in 0..2147483647",
        ),
        (
            '{"arrival_ms": 0, "prompt_tokens": 1, "output_tokens": -4}',
            "output_tokens is -4; expected an integer in 0..2147483647",
        ),
        (
            '{"arrival_ms": 0, "prompt_tokens": 1.5, "output_tokens": 1}',
            "prompt_tokens is 1.5; expected an integer in 0..2147483647",
        ),
        (
            '{"arrival_ms": 0, "prompt_tokens": 1, "output_tokens": 1, "generate_tokens": 1}',
            "generate_tokens is 1; expected none beside output_tokens",
        ),
        (
            '{"arrival_ms": 0, "service_ms": 1, "sesion_id": "a"}',
            "key 'sesion_id' is unknown; expected one of adapter_id, arrival_ms, block_ids,",
        ),
        (
            '{"arrival_ms": 0, "service_ms": 1, "session_id": [1]}',
            "session_id is [1]; expected a string or an integer",
        ),
        (
            '{"arrival_ms": 0, "service_ms": 1, "block_ids": [1, true]}',
            "block_ids[1] is True; expected a string or an integer",
        ),
        (
            '{"arrival_ms": 0, "service_ms": 1, "prefix_tokens": 5}',
            "prefix_tokens is 5; expected a prefix_key or block_ids with it",
        ),
        (
            '{"arrival_ms": 0, "prompt_tokens": 4, "output_tokens": 1, "prefix_key": "k",'
            ' "prefix_tokens": 5}',
            "prefix_tokens is 5; expected at most prompt_tokens, 4",
        ),
        (
            '{"arrival_ms": 0, "service_ms": 1, "prefix_key": "k", "block_ids": [1]}',
            "prefix_key is 'k'; expected none beside block_ids",
        ),
        ('{"arrival_ms": 0, "service_ms": 1', "not JSON (Input data was truncated); expected one"),
        ('{"arrival_ms": 0, "service_ms": 1} x', "not JSON (JSON is malformed: trailing character"),
        ("[0, 1]", "the line is no JSON object; expected one object a line"),
    ],
)
def test_a_bad_line_says_where_what_and_what_was_wanted(read, row, message):
    good = '{"arrival_ms": 0, "service_ms": 1}\n'
    assert refusal(read, f"{good}{row}\n").startswith(f"line 2: {message}")


def test_an_unknown_key_comes_with_the_nearest_known_one(read):
    text = refusal(read, '{"arrival_ms": 0, "service_ms": 1, "sesion_id": "a"}')
    assert text.endswith("did you mean session_id?")


def test_a_long_value_is_cut_in_the_message(read):
    text = refusal(read, '{"arrival_ms": "%s", "service_ms": 1}' % ("9" * 1_000_000))
    assert text.endswith("... (1000002 characters); expected a time in ms in 0..1e15")
    assert len(text) < 200


def test_a_number_with_thousands_of_digits_is_refused(read):
    row = '{"arrival_ms": 0, "service_ms": 1, "prompt_tokens": %s}' % ("9" * 5_000)
    assert refusal(read, row).startswith("line 1: prompt_tokens cannot be read; expected an int")


def test_deep_nesting_is_refused(read):
    row = '{"arrival_ms": 0, "service_ms": 1, "session_id": %s}' % ("[" * 100_000)
    assert refusal(read, row).startswith("line 1: ")


def test_invalid_utf8_is_refused(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"arrival_ms": 0, "service_ms": 1, "session_id": "\xff"}\n')
    with pytest.raises(InputError, match=r"line 1: .*UTF-8"):
        read_workload(path)


def test_an_id_used_twice_is_refused(read):
    row = '{"request_id": "a", "arrival_ms": 0, "service_ms": 1}\n'
    assert refusal(read, row + row) == "line 2: request_id is 'a'; expected an id not used before"


def test_rows_with_and_without_ids_do_not_mix(read):
    named = '{"request_id": "a", "arrival_ms": 0, "service_ms": 1}\n'
    bare = '{"arrival_ms": 0, "service_ms": 1}\n'
    assert refusal(read, named + bare).startswith("line 2: request_id is missing;")
    assert refusal(read, bare + named).startswith("line 2: request_id is 'a'; expected none")


def test_a_file_names_prefixes_in_one_way(read):
    keyed = '{"arrival_ms": 0, "service_ms": 1, "prefix_key": "k"}\n'
    blocks = '{"arrival_ms": 0, "service_ms": 1, "block_ids": [1]}\n'
    assert refusal(read, HEADER + keyed + blocks) == (
        "line 3: block_ids in a file that has prefix_key above; expected one of the two"
    )


def test_the_headers_version_is_checked(read):
    assert refusal(read, '{"pointsman": 2}\n') == (
        "line 1: pointsman is 2; expected 1, the format's version"
    )


def test_a_block_size_other_than_the_stated_one_is_refused(read):
    row = '{"arrival_ms": 0, "service_ms": 1}\n'
    assert refusal(read, HEADER + row, block_size_tokens=32) == (
        "line 1: block_size_tokens is 16; expected 32, as was asked for"
    )


def test_a_header_alone_holds_no_requests(read):
    assert refusal(read, HEADER) == ": no requests; expected at least one good line"
