"""The requests that the file of an experiment asks for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pointsman.bench.client.arrivals import ClosedLoop, OpenLoop
from pointsman.bench.experiment import Generated, WorkloadWanted, read_experiment
from pointsman.bench.requests import digest_of, loop_of, requests_of
from pointsman.bench.run import bench_of
from pointsman.core.errors import InputError
from pointsman.workload.workload import Names, Source, workload_of_columns
from tests.bench.experiments import one, written

ROOT = Path(__file__).resolve().parents[2]


def test_the_lessons_requests_are_512_tokens_in_and_64_out():
    wanted = read_experiment(ROOT / "examples" / "lesson81.toml").workload
    requests = requests_of(wanted, ROOT / "examples")
    assert set(requests.prompt_tokens.tolist()) == {512}
    assert set(requests.output_tokens.tolist()) == {64}
    assert requests.span_ms == 0.0


def test_a_trace_is_looked_for_from_the_experiments_folder():
    wanted = WorkloadWanted(id="few", trace="poisson.jsonl", limit=5)
    assert len(requests_of(wanted, ROOT / "examples")) == 5


def test_the_seed_alone_settles_what_is_drawn():
    drawn = Generated(
        requests=50,
        prompt_tokens="uniform:min=10,max=90",
        output_tokens="8",
        rate_rps=10.0,
        turns="3",
        think_time_ms="100",
        system_prompt_tokens="32",
    )
    first, again, other = (
        requests_of(WorkloadWanted(id="drawn", generate=drawn, seed=seed), ROOT)
        for seed in (1, 1, 2)
    )
    assert np.array_equal(first.prompt_tokens, again.prompt_tokens)
    assert np.array_equal(first.arrival_ms, again.arrival_ms)
    assert not np.array_equal(first.prompt_tokens, other.prompt_tokens)
    assert first.session_count > 1


TOKENS = (
    '{{"request_id": "{id}", "arrival_ms": {at}, "prompt_tokens": 9, "output_tokens": {out}}}\n'
)


def test_no_answer_is_asked_to_be_longer_than_max_tokens(tmp_path):
    lines = [TOKENS.format(id=k, at=k, out=out) for k, out in enumerate((3, 64, 65, 900))]
    (tmp_path / "t.jsonl").write_text("".join(lines))
    wanted = WorkloadWanted(id="t", trace="t.jsonl", max_tokens=64)
    assert requests_of(wanted, tmp_path).output_tokens.tolist() == [3, 64, 64, 64]


def test_requests_without_tokens_are_refused_with_their_line(tmp_path):
    lines = [
        TOKENS.format(id="a", at=0, out=1),
        '{"request_id": "b", "arrival_ms": 1, "service_ms": 20}\n',
    ]
    (tmp_path / "t.jsonl").write_text("".join(lines))
    with pytest.raises(InputError, match=r"t\.jsonl line 2: has no tokens; expected prompt_tokens"):
        requests_of(WorkloadWanted(id="t", trace="t.jsonl"), tmp_path)


COLUMNS = {
    "prompt_tokens": [8, 9, 9],
    "output_tokens": [4, 5, 6],
    "session": [0, 0, 1],
    "adapter": [0, 0, 0],
    "chain_start": [0, 1, 2, 2],
    "chain_blocks": [0, 1],
    "prefix_tokens": [2, 3, 0],
    "priority": [0, 1, 0],
    "block_size_tokens": 4,
}
ARRIVALS = [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("column", "other"),
    [
        ("arrival_ms", [0.0, 1.0, 2.5]),
        ("service_ms", [1.0, 1.0, 1.0]),
        ("prompt_tokens", [8, 9, 10]),
        ("output_tokens", [4, 5, 7]),
        ("session", [0, 1, 1]),
        ("adapter", [0, 0, 1]),
        ("chain_start", [0, 1, 1, 2]),
        ("chain_blocks", [0, 0]),
        ("prefix_tokens", [2, 2, 0]),
        ("priority", [0, 0, 0]),
    ],
)
def test_the_digest_is_another_one_where_any_column_is(column, other):
    workload = workload_of_columns(ARRIVALS, **COLUMNS)
    changed = np.array(other, dtype=getattr(workload, column).dtype)
    assert digest_of(replace(workload, **{column: changed})) != digest_of(workload)


def test_the_digest_is_the_same_for_the_same_and_another_one_for_other_blocks():
    known = digest_of(workload_of_columns(ARRIVALS, **COLUMNS))
    assert digest_of(workload_of_columns(ARRIVALS, **COLUMNS)) == known
    assert digest_of(workload_of_columns(ARRIVALS, **{**COLUMNS, "block_size_tokens": 5})) != known


def test_the_digest_does_not_know_what_things_are_called_nor_where_they_come_from():
    workload = workload_of_columns(ARRIVALS, **COLUMNS)
    named = replace(
        workload, names=Names(requests=("a", "b", "c")), source=Source("elsewhere.jsonl")
    )
    assert digest_of(named) == digest_of(workload)


def test_a_warm_up_that_leaves_nothing_to_measure_is_refused(tmp_path):
    class There:
        url = "http://127.0.0.1:9"

    file = written(tmp_path, [one(There)], head="warmup_requests = 6", requests=6)
    with pytest.raises(InputError, match="warmup_requests is 6; expected fewer than the 6"):
        bench_of(read_experiment(file), file, tmp_path / "results", {})


def test_an_open_load_may_be_capped_and_a_closed_one_keeps_so_many_in_flight():
    few = {"id": "t", "trace": "t.jsonl", "concurrency": 3}
    assert loop_of(WorkloadWanted(**few)) == OpenLoop(3)
    assert loop_of(WorkloadWanted(id="t", trace="t.jsonl")) == OpenLoop(None)
    closed = WorkloadWanted(**few, load="closed", think_time_ms=5.0)
    assert loop_of(closed) == ClosedLoop(3, 5.0)
