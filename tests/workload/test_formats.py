from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import sys
import tempfile
import threading
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.errors import InputError
from pointsman.workload.formats import is_decision_log, read_workload
from pointsman.workload.reading import ReadOptions

ROW = b'{"arrival_ms": 1, "service_ms": 2}\n'
BAD = b'{"arrival_ms": -1, "service_ms": 2}\n'


@pytest.fixture
def path(tmp_path):
    return tmp_path / "t.jsonl"


def refused(path, content: bytes, **options) -> str:
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_workload(path, ReadOptions(**options))
    return str(caught.value).replace(f"{path.parent}/", "")


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (ROW, "pointsman"),
        (b'{"pointsman": 1}\n' + ROW, "pointsman"),
        (b'{"timestamp": 0, "input_length": 1, "output_length": 1}\n', "mooncake"),
        (b"TIMESTAMP,ContextTokens,GeneratedTokens\n2024-01-01 00:00:00,1,1\n", "azure"),
        (b'{"chat_id": 1, "timestamp": 0, "input_length": 1, "output_length": 1}\n', "bailian"),
        (b"Timestamp,Model,Request tokens,Response tokens\n5,GPT-4,1,1\n", "burstgpt"),
        (b"arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,1,1\n", "vidur"),
    ],
)
def test_the_content_tells_the_format(path, content, name):
    path.write_bytes(content)
    assert read_workload(path).source.format == name


def test_a_format_that_is_named_is_taken(path):
    assert "key 'arrival_ms' is unknown" in refused(path, ROW, format="mooncake")


def test_an_option_for_failed_requests_is_refused_where_none_are_recorded(path):
    text = refused(path, ROW, failed_requests="keep")
    assert text == "t.jsonl: failed_requests is 'keep'; expected none for pointsman"


def test_an_unknown_format_name_comes_with_the_nearest_one(path):
    assert refused(path, ROW, format="moncake").endswith("did you mean mooncake?")


def test_content_of_no_known_format_is_refused(path):
    assert refused(path, b"Timestamp,Model\n1,GPT-4\n") == (
        "t.jsonl line 1: 'Timestamp,Model' begins no format known here;"
        " expected one of pointsman, mooncake, azure, bailian, burstgpt, vidur, vllm_timed_trace"
        " (--format-in names one; docs/formats.md shows how each looks)"
    )


def test_a_decision_log_is_refused_with_the_way_to_use_it(path):
    text = refused(path, b'{"event": "log", "version": 1}\n')
    assert text.endswith("`pointsman trace convert` makes one of it")
    assert is_decision_log(path)


@pytest.mark.parametrize(("pack", "kind"), [(gzip.compress, "gzip"), (zstandard.compress, "zstd")])
def test_a_compressed_decision_log_is_refused_with_the_way_to_use_it(path, pack, kind):
    text = refused(path, pack(b'{"event": "log", "version": 1}\n'))
    assert text == (
        f"t.jsonl: a decision log packed with {kind}, not a workload;"
        " unpack it, then `pointsman trace convert` makes one of it"
    )
    assert not is_decision_log(path)


@pytest.fixture
def pipe(tmp_path):
    """A named pipe, and what writes into it once it is opened."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writers = []

    def filled(content: bytes) -> Path:
        writers.append(threading.Thread(target=path.write_bytes, args=(content,)))
        writers[-1].start()
        return path

    yield filled
    for writer in writers:
        writer.join()


def test_a_pipe_loses_nothing_to_the_question_what_is_in_it(pipe):
    path = pipe(ROW * 20_000)
    assert not is_decision_log(path)
    workload = read_workload(path)
    assert len(workload) == 20_000
    assert workload.source.sha256 == hashlib.sha256(ROW * 20_000).hexdigest()


def test_a_decision_log_in_a_pipe_is_refused_with_the_way_to_use_it(pipe):
    path = pipe(b'{"event": "log", "version": 1}\n')
    with pytest.raises(InputError, match="from a pipe, not a workload; save it to a file first"):
        read_workload(path)


def test_a_path_to_nothing_is_no_decision_log(tmp_path):
    assert not is_decision_log(tmp_path / "none")
    assert not is_decision_log(tmp_path)


def test_a_workload_is_no_decision_log(path):
    path.write_bytes(ROW)
    assert not is_decision_log(path)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress])
def test_compression_is_seen_by_the_first_bytes_and_the_digest_is_of_the_file(path, pack):
    content = pack(ROW * 3)
    path.write_bytes(content)
    workload = read_workload(path)
    assert len(workload) == 3
    assert workload.source.sha256 == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_packed_parts_that_follow_each_other_are_one_file(path, pack):
    path.write_bytes(pack(ROW) + pack(ROW))
    assert len(read_workload(path)) == 2


@pytest.mark.parametrize(("pack", "kind"), [(gzip.compress, "gzip"), (zstandard.compress, "zstd")])
def test_packed_data_that_ends_early_is_refused(path, pack, kind):
    rows = b"".join(b'{"arrival_ms": %d, "service_ms": %d}\n' % (i, i * i) for i in range(999))
    text = refused(path, pack(rows)[:-40])
    assert text == f"t.jsonl: the {kind} data ends early; expected a whole file (copy it again)"


@pytest.mark.parametrize(("pack", "kind"), [(gzip.compress, "gzip"), (zstandard.compress, "zstd")])
def test_packed_data_that_is_damaged_is_refused(path, pack, kind):
    content = bytearray(pack(ROW * 100))
    content[10:20] = b"\xff" * 10
    assert f"the {kind} data is damaged" in refused(path, bytes(content))


def test_a_byte_order_mark_is_no_part_of_the_text(path):
    path.write_bytes(b"\xef\xbb\xbf" + ROW)
    assert len(read_workload(path)) == 1


def test_utf16_is_refused(path):
    assert refused(path, ROW.decode().encode("utf-16")) == (
        "t.jsonl: the text is UTF-16; expected UTF-8"
    )


def test_windows_line_ends_and_blank_lines_are_no_content(path):
    path.write_bytes(b"\r\n" + ROW.replace(b"\n", b"\r\n") + b"  \n\n" + ROW.strip())
    assert len(read_workload(path)) == 2


def test_blank_lines_count_as_lines_of_the_file(path):
    assert refused(path, ROW + b"\n" + BAD).startswith("t.jsonl line 3: arrival_ms is -1;")


@pytest.mark.parametrize("content", [b"", b"\n \r\n"])
def test_an_empty_file_is_refused(path, content):
    assert refused(path, content) == "t.jsonl: the file is empty; expected requests, one a line"


def test_a_missing_file_and_a_folder_are_wrong_input(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_workload(tmp_path / "none.jsonl")
    with pytest.raises(InputError, match="is a folder; expected a file"):
        read_workload(tmp_path)


def test_bad_lines_are_left_out_and_counted_on_request(path):
    path.write_bytes(b"nonsense\n" + ROW + BAD + ROW)
    workload = read_workload(path, ReadOptions(skip_bad=True))
    assert len(workload) == 2
    assert workload.source.skipped_lines == 2


def test_nothing_but_bad_lines_is_refused(path):
    assert refused(path, BAD * 3, skip_bad=True) == (
        "t.jsonl: no requests, and 3 bad lines; expected at least one good line"
    )


def test_the_limit_takes_the_first_requests_and_the_digest_all_of_the_file(path):
    content = ROW * 2 + BAD + ROW * 400_000
    path.write_bytes(content)
    workload = read_workload(path, ReadOptions(limit=2))
    assert len(workload) == 2
    assert workload.source.sha256 == hashlib.sha256(content).hexdigest()


def test_a_line_of_a_million_characters_is_read(path):
    ids = ", ".join(map(str, range(200_000)))
    row = f'{{"arrival_ms": 0, "service_ms": 1, "block_ids": [{ids}]}}\n'
    assert len(row) > 1_000_000
    path.write_text(row * 2)
    workload = read_workload(path, ReadOptions(block_size_tokens=16))
    assert workload.block_count == 200_000
    assert workload.chain_blocks.size == 400_000


def test_a_dash_is_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(ROW)))
    workload = read_workload("-")
    assert workload.source.name == "stdin"


_SEEDS = (
    ROW * 2,
    b'{"pointsman": 1, "block_size_tokens": 4}\n'
    b'{"arrival_ms": 0, "prompt_tokens": 9, "output_tokens": 1, "block_ids": [1, "b", 2]}\n',
    b'{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [0, 1]}\n' * 2,
    b"TIMESTAMP,ContextTokens,GeneratedTokens\n2024-01-01 00:00:00.1234567,1,1\n",
    b'{"chat_id": 1, "parent_chat_id": 2, "timestamp": 0.5, "input_length": 40,'
    b' "output_length": 1, "type": "text", "turn": 2, "hash_ids": [4, 5, 6]}\n',
    b"Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens\n5.0,a,3,GPT-4,1,1\n",
    b"arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,12,1\n",
    gzip.compress(ROW, mtime=0),
    zstandard.compress(ROW),
)


@given(st.sampled_from(_SEEDS), st.integers(0), st.binary(max_size=4), st.booleans())
def test_whatever_the_bytes_they_are_read_or_refused_in_words(content, place, noise, skip_bad):
    place %= len(content)
    content = content[:place] + noise + content[place + len(noise) :]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        path.write_bytes(content)
        with contextlib.suppress(InputError):
            assert len(read_workload(path, ReadOptions(skip_bad=skip_bad))) > 0


def test_how_many_bytes_were_read_is_told(path):
    path.write_bytes(gzip.compress(ROW * 10))
    read_bytes: list[int] = []
    read_workload(path, ReadOptions(on_bytes=read_bytes.append))
    assert sum(read_bytes) == path.stat().st_size


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limit": 0}, "limit is 0; expected an integer in 1"),
        ({"block_size_tokens": 0}, "block_size_tokens is 0"),
        ({"spread_seed": -1}, "spread_seed is -1"),
        ({"time_unit": "m"}, "time_unit is 'm'; expected ms or s"),
        ({"failed_requests": "drop"}, "failed_requests is 'drop'; expected keep or omit"),
    ],
)
def test_an_option_out_of_range_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        ReadOptions(**options)
