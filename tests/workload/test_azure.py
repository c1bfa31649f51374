from __future__ import annotations

import pytest

from pointsman.core.errors import InputError
from pointsman.workload.formats import read_workload
from pointsman.workload.reading import ReadOptions

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
FIRST = "2024-02-28 23:59:59.9999999,10,2"


@pytest.fixture
def read(tmp_path):
    def read(*lines: str, end: str = "\n", **options):
        path = tmp_path / "a.csv"
        path.write_bytes(end.join(lines).encode())
        return read_workload(path, ReadOptions(**options))

    return read


def test_a_tenth_of_a_microsecond_is_kept_over_midnight(read):
    # 100 ns before a leap day until 100 ns after it began.
    workload = read(HEADER, FIRST, "2024-02-29 00:00:00.0000001,20,3")
    assert workload.arrival_ms.tolist() == [0.0, 0.0002]
    assert workload.prompt_tokens.tolist() == [10, 20]
    assert workload.output_tokens.tolist() == [2, 3]


def test_the_earliest_row_arrives_at_0_wherever_it_stands(read):
    workload = read(HEADER, "2023-11-16 10:00:01,1,1", "2023-11-16 10:00:00.5,2,2")
    assert workload.arrival_ms.tolist() == [0.0, 500.0]
    assert workload.prompt_tokens.tolist() == [2, 1]
    assert workload.source.out_of_order == 1


def test_an_offset_from_utc_is_applied(read):
    workload = read(HEADER, "2024-05-10 00:00:00+00:00,1,1", "2024-05-10 02:00:01.5+02:00,1,1")
    assert workload.arrival_ms.tolist() == [0.0, 1500.0]


def test_windows_line_ends_and_no_last_end_are_taken(read):
    assert len(read(HEADER, FIRST, FIRST, end="\r\n")) == 2


def test_columns_may_stand_in_any_order(read):
    workload = read("GeneratedTokens,TIMESTAMP,ContextTokens", "7,2024-01-01 00:00:00,9")
    assert (workload.prompt_tokens.tolist(), workload.output_tokens.tolist()) == ([9], [7])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("2024-13-01 00:00:00,1,1", "TIMESTAMP is '2024-13-01'; expected a time such as 2023-"),
        ("2024-01-01 24:00:00,1,1", "TIMESTAMP is '2024-01-01 24:00:00'; expected a time such"),
        ("17,1,1", "TIMESTAMP is '17'; expected a time such as 2023-11-16 18:15:46.6805900"),
        ("2024-01-01 00:00:00,-4,1", "ContextTokens is '-4'; expected an integer in 0..2147483647"),
        ("2024-01-01 00:00:00,1_0,1", "ContextTokens is '1_0'; expected an integer"),
        ("2024-01-01 00:00:00,1,3000000000", "GeneratedTokens is '3000000000'; expected an"),
        ("2024-01-01 00:00:00,1,", "GeneratedTokens is ''; expected an integer"),
        ("2024-01-01 00:00:00,1", "2 columns; expected 3"),
    ],
)
def test_a_bad_line_says_where_what_and_what_was_wanted(read, line, message):
    with pytest.raises(InputError) as caught:
        read(HEADER, FIRST, line)
    assert f"a.csv line 3: {message}" in str(caught.value)


def test_an_unknown_column_is_refused_with_the_nearest_known_one(read):
    with pytest.raises(InputError, match="did you mean ContextTokens"):
        read("TIMESTAMP,ContextToken,GeneratedTokens", FIRST)


def test_a_missing_column_is_refused(read):
    with pytest.raises(InputError, match="line 1: GeneratedTokens is missing"):
        read("TIMESTAMP,ContextTokens", "2024-01-01 00:00:00,1")


def test_a_header_alone_holds_no_requests(read):
    with pytest.raises(InputError, match="no requests"):
        read(HEADER)


@pytest.mark.traces
def test_the_public_trace_is_read_whole(shared):
    workload = read_workload(shared("traces/azure_code_2023.csv"))
    assert len(workload) == 8_819
    assert round(workload.prompt_tokens.mean()) == 2_048
    assert round(workload.output_tokens.mean()) == 28
    assert 57 <= workload.span_ms / 60_000 < 58
