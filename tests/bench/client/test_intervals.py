"""Intervals of figures over repeated runs."""

from __future__ import annotations

import math

import numpy as np

from pointsman.bench.client.intervals import interval_of, intervals
from pointsman.verdict.bootstrap import Resampling, mean_of, percentile_of
from tests.bench.client.loads import measured, requests
from tests.bench.client.stand_in import answers_at_once
from tests.verdict.binomial import within

REPETITIONS = 120
RUNS, REQUESTS = 3, 400


def covered(figure, true: float) -> int:
    """How often the interval at 95 % holds what is true of exponential latencies of mean 1."""
    count = 0
    for seed in range(REPETITIONS):
        random = np.random.default_rng(seed)
        runs = [random.standard_exponential(REQUESTS) for _ in range(RUNS)]
        interval = interval_of(runs, figure, seed, Resampling(resamples=300))
        count += interval.low <= true <= interval.high
    return count


def test_the_true_p99_is_inside_the_interval_of_three_runs_at_the_stated_rate():
    assert within(covered(percentile_of(0.99), -math.log(0.01)), REPETITIONS, 0.95)


def test_the_true_mean_is_inside_the_interval_of_three_runs_at_the_stated_rate():
    assert within(covered(mean_of, 1.0), REPETITIONS, 0.95)


def test_repeats_give_one_interval_a_figure_and_state_their_seeds():
    runs = [measured(answers_at_once, requests(30), seed=seed)[0] for seed in (1, 2, 3)]
    found = intervals(runs)
    assert (found.runs, found.seeds) == (3, (1, 2, 3))
    for name in ("mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "p99_e2e_ms"):
        interval = found.of[name]
        assert interval.n == 90
        assert interval.low <= interval.estimate <= interval.high


def test_what_no_request_has_gets_no_interval():
    """Answers of one token have no time per token."""
    runs = [measured(answers_at_once, requests(8, output_tokens=[1] * 8))[0]]
    assert intervals(runs).of["mean_tpot_ms"] is None
