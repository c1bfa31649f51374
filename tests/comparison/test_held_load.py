"""The load that a fleet holds, against queues that can be worked out on paper."""

from __future__ import annotations

import numpy as np
import pytest

from pointsman import POLICIES, InputError, workload_of_columns
from pointsman.comparison.held_load import Cell, Target, at_load, held_load
from pointsman.costs.iteration import IterationCosts
from pointsman.metrics.goodput import Objectives
from pointsman.sim.batching import BatchingFleet, Engine

# One request at a time, one iteration each: 2 + 80 x 0.1 = 10 ms.
ENGINE = Engine(IterationCosts(2.0, 0.1, 0.0, 0.0), kv_blocks=100, max_num_seqs=1)
SERVICE_MS = 10.0
REQUESTS = 1000
TURNS = POLICIES["round_robin"]


def every(gap_ms: float, requests: int = REQUESTS):
    return workload_of_columns(
        np.arange(requests) * gap_ms,
        prompt_tokens=np.full(requests, 80),
        output_tokens=np.full(requests, 1),
    )


def d_d_1(gap_ms: float, replicas: int = 1) -> Cell:
    return Cell(every(gap_ms), BatchingFleet.of(ENGINE, replicas))


def most_load(gap_ms: float, ttft_ms: float) -> float:
    """Of D/D/1 with gap G / m, request i waits i (10 - G / m) ms. 950 of 1,000 are in time while
    request 949 waits at most S - 10 ms: G / m >= 10 - (S - 10) / 949."""
    return gap_ms / (SERVICE_MS - (ttft_ms - SERVICE_MS) / 949)


@pytest.mark.parametrize("gap_ms", [10.0, 40.0, 1000.0])
@pytest.mark.parametrize("ttft_ms", [30.0, 300.0, 2000.0])
def test_one_replica_with_constant_service_and_gaps_holds_what_theory_says(gap_ms, ttft_ms):
    held = held_load(d_d_1(gap_ms), TURNS, Target(Objectives(ttft_ms=ttft_ms)))
    most = most_load(gap_ms, ttft_ms)
    assert held.load_ratio <= most < held.load_ratio * 1.012


def test_replicas_that_take_turns_hold_as_many_times_more():
    """Four take every fourth of 1,000: 250 each, of which request 237 must be in time, for
    950 = 237 x 4 + 2: 40 / m >= 10 - 290 / 237."""
    held = held_load(d_d_1(10.0, replicas=4), TURNS, Target(Objectives(ttft_ms=300.0)))
    most = 40.0 / (SERVICE_MS - 290.0 / 237)
    assert held.load_ratio <= most < held.load_ratio * 1.012


@pytest.mark.parametrize("guess", [1e-3, 0.37, 1.0, 1.05, 30.0, 900.0])
def test_where_the_search_begins_changes_nothing_but_its_length(guess):
    target = Target(Objectives(ttft_ms=300.0))
    first = held_load(d_d_1(10.0), TURNS, target)
    again = held_load(d_d_1(10.0), TURNS, target, guess)
    assert again.load_ratio == first.load_ratio
    assert again.at == first.at


@pytest.mark.parametrize("tolerance_ratio", [1.001, 1.012, 1.3, 2.0])
def test_the_target_is_met_at_the_load_held_and_missed_one_tolerance_above(tolerance_ratio):
    cell, objectives = d_d_1(10.0), Objectives(ttft_ms=300.0)
    held = held_load(cell, TURNS, Target(objectives, tolerance_ratio=tolerance_ratio))
    above = at_load(cell, TURNS, objectives, held.load_ratio * tolerance_ratio)
    assert held.at.goodput_fraction >= 0.95 > above.goodput_fraction


def test_a_higher_attainment_holds_less():
    """All of 1,000 in time: request 999 waits at most 290 ms."""
    target = Target(Objectives(ttft_ms=300.0), attainment_fraction=1.0)
    held = held_load(d_d_1(10.0), TURNS, target)
    most = 10.0 / (SERVICE_MS - 290.0 / 999)
    assert held.load_ratio <= most < held.load_ratio * 1.012


def test_the_figures_are_those_at_the_load_held():
    """At a multiple of 1 / 1.2 the gap is 12 ms: nobody waits, and nothing is cached."""
    figures = at_load(d_d_1(10.0), TURNS, Objectives(ttft_ms=300.0), 1 / 1.2)
    assert figures.worst_ttft_ms == pytest.approx(10.0)
    assert figures.p99_ttft_ms == pytest.approx(10.0)
    assert figures.p99_tpot_ms is None
    assert figures.cached_token_fraction == 0.0
    assert figures.simulated_ms == pytest.approx(999 * 12.0 + 10.0)


def test_what_no_load_meets_is_held_at_no_load():
    held = held_load(d_d_1(10.0), TURNS, Target(Objectives(ttft_ms=9.0)))
    assert (held.load_ratio, held.at) == (0.0, None)
    assert held.simulations > 1


def test_what_every_load_meets_is_an_error_that_says_what_to_do():
    cell = Cell(every(10.0, requests=5), BatchingFleet.of(ENGINE, 1))
    with pytest.raises(InputError, match=r"under round_robin .* and more; expected a longer trace"):
        held_load(cell, TURNS, Target(Objectives(ttft_ms=300.0)))


def test_a_run_counts_its_simulations_and_their_hours():
    """A thousand requests at 0.83 to 1.2 times one in 10 ms last 12 to 10 s."""
    held = held_load(d_d_1(10.0), TURNS, Target(Objectives(ttft_ms=300.0)))
    assert held.simulations >= 4
    assert 10.0 <= held.simulated_hours * 3600 / held.simulations <= 12.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"attainment_fraction": 0.0}, "attainment is 0.0"),
        ({"attainment_fraction": 1.01}, "attainment is 1.01"),
        ({"tolerance_ratio": 1.0}, "tolerance is 1.0"),
        ({"tolerance_ratio": float("nan")}, "tolerance is nan"),
    ],
)
def test_targets_outside_their_range_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        Target(Objectives(ttft_ms=1.0), **given)


@pytest.mark.parametrize("guess", [0.0, -1.0, float("inf"), float("nan")])
def test_a_guess_is_a_positive_number(guess):
    with pytest.raises(InputError, match="guess is"):
        held_load(d_d_1(10.0), TURNS, Target(Objectives(ttft_ms=300.0)), guess)


def test_an_empty_workload_is_refused():
    cell = Cell(workload_of_columns([], prompt_tokens=[], output_tokens=[]), d_d_1(1.0).fleet)
    with pytest.raises(InputError, match="no requests"):
        held_load(cell, TURNS, Target(Objectives(ttft_ms=300.0)))
