from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from pointsman.core.errors import InputError, MachineError
from pointsman.workload.builder import Row, WorkloadBuilder
from pointsman.workload.formats import read_workload
from pointsman.workload.workload import Workload, workload_of_columns
from pointsman.workload.writer import write_workload
from tests.strategies import workloads
from tests.workload.equality import assert_equal


def written_and_read(workload: Workload, suffix: str = "") -> Workload:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"w.jsonl{suffix}"
        write_workload(workload, path)
        return read_workload(path)


@given(workloads())
def test_what_is_written_is_read_back_exactly(workload):
    assert_equal(written_and_read(workload), workload)


@given(workloads(max_size=3))
def test_writing_what_was_read_gives_the_same_bytes(workload):
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder) / "a.jsonl", Path(folder) / "b.jsonl"
        write_workload(workload, first)
        write_workload(read_workload(first), second)
        assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_the_suffix_chooses_the_compression_and_the_content_stays(tmp_path, suffix):
    workload = workload_of_columns([1.5, 2.0], prompt_tokens=[3, 4], output_tokens=[5, 6])
    path = tmp_path / f"w.jsonl{suffix}"
    write_workload(workload, path)
    assert path.read_bytes()[:2] == {"": b'{"', ".gz": b"\x1f\x8b", ".zst": b"\x28\xb5"}[suffix]
    assert_equal(read_workload(path), workload)


def test_a_row_shows_only_what_it_has(tmp_path):
    workload = workload_of_columns(
        [0.0, 1.25],
        service_ms=[7.0, np.nan],
        prompt_tokens=[-1, 40],
        output_tokens=[-1, 5],
        session=[-1, 0],
        chain_start=[0, 0, 2],
        chain_blocks=[0, 1],
        block_size_tokens=16,
    )
    write_workload(workload, tmp_path / "w.jsonl")
    assert (tmp_path / "w.jsonl").read_text() == (
        '{"pointsman":1,"block_size_tokens":16}\n'
        '{"arrival_ms":0.0,"service_ms":7.0}\n'
        '{"arrival_ms":1.25,"prompt_tokens":40,"output_tokens":5,"session_id":0,"block_ids":[0,1]}\n'
    )


def test_a_single_prefix_is_written_as_a_key_without_a_header(tmp_path):
    workload = workload_of_columns([0.0], service_ms=[7.0], chain_start=[0, 1], chain_blocks=[0])
    write_workload(workload, tmp_path / "w.jsonl")
    text = (tmp_path / "w.jsonl").read_text()
    assert text == '{"arrival_ms":0.0,"service_ms":7.0,"prefix_key":0}\n'


def test_a_partial_block_that_a_chain_covers_is_kept_by_stating_its_tokens():
    workload = workload_of_columns(
        [0.0],
        prompt_tokens=[20],
        output_tokens=[1],
        chain_start=[0, 2],
        chain_blocks=[0, 1],
        prefix_tokens=[20],
        block_size_tokens=16,
    )
    assert_equal(written_and_read(workload), workload)


def test_equal_workloads_give_equal_bytes_when_compressed(tmp_path):
    workload = workload_of_columns([1.0], service_ms=[2.0])
    write_workload(workload, tmp_path / "a.jsonl.gz")
    write_workload(workload, tmp_path / "b.jsonl.gz")
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()).endswith(b"}\n")


def test_a_workload_without_requests_is_not_written(tmp_path):
    with pytest.raises(InputError, match="no requests"):
        write_workload(workload_of_columns([]), tmp_path / "w.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_different_sessions_of_one_name_are_not_merged(tmp_path):
    builder = WorkloadBuilder()
    builder.add(Row(0.0, service_ms=1.0, session=7), "row 0")
    builder.add(Row(1.0, service_ms=1.0, session="7"), "row 1")
    with pytest.raises(InputError, match="a name of sessions is '7'; expected a name that only"):
        write_workload(builder.build(), tmp_path / "w.jsonl")


def test_a_missing_folder_is_the_machines_refusal(tmp_path):
    workload = workload_of_columns([1.0], service_ms=[2.0])
    with pytest.raises(MachineError, match="cannot write"):
        write_workload(workload, tmp_path / "none" / "w.jsonl")
