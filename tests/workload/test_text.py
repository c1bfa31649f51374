from __future__ import annotations

import gzip
import tracemalloc

import pytest

from pointsman.core.errors import InputError
from pointsman.workload.text import MAX_LINE_BYTES, TextFile

MIB = 1 << 20


def lines_of(path, content: bytes) -> list[tuple[int, bytes]]:
    path.write_bytes(content)
    with TextFile(path) as file:
        return list(file.lines())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "t"


def test_lines_keep_their_numbers_across_blank_ones_and_pieces(path):
    long = b"{" + b"x" * MIB
    content = b"{a\n\n" + b"\n" * 600_000 + long + b"\r\n  \n{b"
    assert lines_of(path, content) == [(1, b"{a"), (600_003, long + b"\r"), (600_005, b"{b")]


def test_blank_space_before_a_line_counts_no_line(path):
    [(number, line)] = lines_of(path, b"\n" + b" " * (MIB // 2) + b"{a\n")
    assert (number, line.strip()) == (2, b"{a")


def test_a_line_that_no_request_begins_is_refused_without_its_end(path):
    with pytest.raises(InputError, match=r"line 2: '\[1, 1, .*' begins a line of more than"):
        lines_of(path, b"{a}\n[" + b"1, " * MIB)


def test_what_begins_a_line_is_found_where_a_piece_ends_with_the_line_before(path):
    with pytest.raises(InputError, match="line 2: "):
        lines_of(path, b"{" + b"a" * (MIB // 4 - 2) + b"\n" + b"[" + b"1, " * MIB)


def test_a_line_that_never_ends_is_refused(path):
    with pytest.raises(InputError, match=f"a line is longer than {MAX_LINE_BYTES} bytes"):
        lines_of(path, b"{" + b" " * (MAX_LINE_BYTES + MIB))


def test_a_hundred_million_packed_line_ends_take_a_few_mib(path):
    content = gzip.compress(b"\n" * 100_000_000)
    tracemalloc.start()
    assert lines_of(path, content) == []
    assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    tracemalloc.stop()
