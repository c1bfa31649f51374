"""The requests that the file of an experiment asks for."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pointsman.bench.experiment import Generated, WorkloadWanted, read_experiment
from pointsman.bench.requests import requests_of

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
