"""The file of a mechanism run, from rounds made by hand."""

from __future__ import annotations

import json

import pytest

from pointsman.bench.mechanism.result import read_result, write_new
from pointsman.core.errors import InputError, MachineError
from tests.bench.mechanism import made

# The lesson on serving replica routing, steps 5.3 and 5.4.
LESSONS_FIELDS = {"workload", "hardware", "metrics", "evidence_level", "failure", "decision"}


def test_the_rows_are_of_the_strategies_with_their_units():
    rows = made.result().metrics.rows
    units = {row.strategy: row.request_cost_units_per_rank for row in rows}
    assert units == {"round_robin": (6, 26), "least_loaded": (17, 15)}


def test_a_ranks_time_is_its_mean_and_the_makespan_that_of_the_slowest():
    round_robin, least_loaded = made.result().metrics.rows
    assert round_robin.rank_elapsed_ms == (7.0, 28.0)
    assert least_loaded.rank_elapsed_ms == (16.5, 17.5)
    assert [row.max_rank_makespan_ms for row in (round_robin, least_loaded)] == [28.0, 17.5]


def test_the_throughput_is_eight_requests_in_the_makespan():
    round_robin = made.result().metrics.rows[0]
    assert round_robin.throughput_requests_per_s_proxy == 285.71429  # 8 / 28 ms


def test_every_repeat_is_kept_with_its_own_slowest_rank():
    least_loaded = made.result().metrics.rows[1]
    assert [(r.rank_elapsed_ms, r.max_rank_makespan_ms) for r in least_loaded.repeats] == [
        ((17.0, 15.0), 17.0),
        ((16.0, 20.0), 20.0),
    ]


def test_a_written_file_has_the_lessons_fields_and_is_read_again(tmp_path):
    path = tmp_path / "new" / "result.json"
    write_new(path, made.result())
    document = json.loads(path.read_text())
    assert set(document) >= LESSONS_FIELDS | {"project", "environment_profile"}
    assert document["project"] == "PAR-REPLICA"
    assert document["environment_profile"] == "PAR-CPU-MECHANISM"
    assert document["kind"] == "mechanism_run"
    assert read_result(path, path.read_bytes()) == made.result()


def test_a_failed_run_has_no_rows_and_says_where_why_and_how_to_go_on():
    result = made.facts().failed("measuring", "rank 1: out of memory")
    assert result.metrics.rows == ()
    assert (result.failure.stage, result.failure.reason) == ("measuring", "rank 1: out of memory")
    assert "--run-label" in result.failure.retry


def test_a_file_that_appeared_meanwhile_is_not_written_over(tmp_path):
    path = tmp_path / "result.json"
    path.write_text("mine")
    with pytest.raises(InputError, match="never overwritten"):
        write_new(path, made.result())
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [
        ("result.json", "mine")
    ]


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError, match=r"cannot write .*file is a file; expected a folder"):
        write_new(tmp_path / "file" / "result.json", made.result())


def test_a_missing_field_is_named(tmp_path):
    write_new(tmp_path / "result.json", made.result())
    document = json.loads((tmp_path / "result.json").read_text())
    del document["metrics"]["rows"][1]["rank_elapsed_ms"]
    with pytest.raises(InputError, match=r"rank_elapsed_ms.*\$\.metrics\.rows\[1\]"):
        read_result(tmp_path / "result.json", json.dumps(document).encode())
