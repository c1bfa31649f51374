"""One replica that runs already, measured in other ways than the rest."""

from __future__ import annotations

import pytest

from tests.bench.engines.answering import answering
from tests.bench.experiments import bench, group_in, one, rows_of, vllm_here, written


def measured(folder, served, **more):
    assert bench(written(folder, [one(served)], head="repeats = 1", **more)) == 0
    return group_in(folder / "results" / "run-1", "g0")


def most_at_once(rows: list[dict]) -> int:
    """In flight, by the client's stamps."""
    ends = [(row["end_ms"], -1) for row in rows]
    counts, most = 0, 0
    for _, change in sorted([*((row["sent_ms"], 1) for row in rows), *ends]):
        counts += change
        most = max(most, counts)
    return most


def test_a_closed_load_keeps_so_many_in_flight_and_the_file_says_so(tmp_path):
    with answering(ms_a_token=2.0) as engine:
        closed = 'load = "closed"\nconcurrency = 3\nthink_time_ms = 1'
        group = measured(tmp_path, engine, workload=closed)
    workload = group["workload"]
    assert (workload["load"], workload["concurrency"]) == ("closed", 3)
    assert workload["think_time_ms"] == 1.0
    assert group["statuses"]["ok"] == 12
    assert most_at_once(rows_of(tmp_path / "results" / "run-1", group["repeats"][0])) == 3


def test_max_tokens_cuts_what_is_asked_and_is_stated(tmp_path):
    with answering() as engine:
        group = measured(tmp_path, engine, workload="max_tokens = 2")
    assert (group["workload"]["max_tokens"], group["workload"]["output_tokens"]) == (2, 24)
    rows = rows_of(tmp_path / "results" / "run-1", group["repeats"][0])
    assert {row["output_tokens"] for row in rows} == {2}


def test_goodput_counts_what_missed_its_objective_and_what_failed(tmp_path):
    """No first token is there within a microsecond; no failed request has any."""
    for place, (objective, status) in enumerate([("0.001", 200), ("60000", 500)]):
        folder = tmp_path / str(place)
        folder.mkdir()
        with answering(status=status) as engine:
            file = written(folder, [one(engine)], head="repeats = 1")
            file.write_text(f"{file.read_text()}[slo]\nttft_ms = {objective}\n")
            assert bench(file) == 0
        goodput = group_in(folder / "results" / "run-1", "g0")["goodput"]
        assert (goodput["offered"], goodput["met"], goodput["fraction"]) == (12, 0, 0.0)


def test_a_server_that_runs_already_is_not_what_is_installed_here(tmp_path):
    """Installed is 0.32.0+cpu, and would say so; what answered is another one."""
    tables = vllm_here(tmp_path)
    with answering() as engine:
        group = measured(tmp_path, engine, **tables)
    assert group["backend"]["version"] == "0.32.0"
    assert group["backend"]["commands"] == []
    reason = group["details"]["peak_memory_mb"]["reason"]
    assert reason.startswith("the engines were not started by us")


@pytest.mark.parametrize("rate", [20.0, 200.0])
def test_the_rate_that_is_asked_is_that_of_the_arrivals(tmp_path, rate):
    """Of twelve, between the first and the last, by the rows."""
    with answering() as engine:
        group = measured(tmp_path, engine, rate_rps=rate)
    rows = rows_of(tmp_path / "results" / "run-1", group["repeats"][0])
    intended = [row["intended_ms"] for row in rows]
    assert group["workload"]["rate_rps"] == pytest.approx(11e3 / (intended[-1] - intended[0]))
