"""A mechanism run is read as the lesson reads it, from any form of its rows."""

from __future__ import annotations

import json

import msgspec
import pytest

from pointsman import InputError
from pointsman.evidence.mechanism_verdict import judge_mechanism
from pointsman.evidence.mechanism_view import StrategyRuns, strategies_of
from tests.evidence.mechanisms import SLOWEST, mechanism


def rows(slowest=SLOWEST):
    return json.loads(msgspec.json.encode(mechanism(slowest)))["metrics"]["rows"]


def judged(round_robin, least_loaded):
    runs = {"round_robin": round_robin, "least_loaded": least_loaded}
    return judge_mechanism(strategies_of(rows(runs)), "m.json", 0.95)


def test_relieved_in_every_repeat_goes_on_to_the_serving_experiment():
    """17 less 26, 17.2 less 26.1, 16.8 less 25.9: -9, -8.9, -9.1; 4.303 * 0.1 / sqrt(3) = 0.25."""
    judgement = judged((26.0, 26.1, 25.9), (17.0, 17.2, 16.8))
    assert (judgement.decision, judgement.next_action) == ("accept", "run_serving_experiment")
    assert (judgement.low, judgement.high) == pytest.approx((-9.2484, -8.7516), abs=1e-4)
    assert "shorter in 3 of 3 rounds, its work [17, 15] against [6, 26] units" in judgement.reason


@pytest.mark.parametrize(
    ("round_robin", "least_loaded"),
    [((26.0, 30.0, 17.0), (17.0, 16.0, 18.0)), ((26.0, 26.0), (17.0, 17.0)), ((26.0,), (17.0,))],
)
def test_relieved_but_unstable_or_seldom_measured_is_repeated(round_robin, least_loaded):
    judgement = judged(round_robin, least_loaded)
    assert (judgement.decision, judgement.next_action) == ("tune", "repeat_mechanism_run")


def test_not_relieved_is_rejected():
    assert judged((17.0, 17.1, 17.2), (26.0, 26.1, 26.2)).decision == "reject"


def test_a_row_a_repeat_is_the_same_as_repeats_in_a_row():
    spread = [
        {**{k: v for k, v in row.items() if k != "repeats"}, "max_rank_makespan_ms": each}
        for row in rows()
        for each in SLOWEST[row["strategy"]]
    ]
    assert strategies_of(spread) == strategies_of(rows())


def test_rows_of_ranks_give_the_slowest_rank_of_each_repeat():
    older = [
        {"strategy": "round_robin", "rank": rank, "request_cost_units": units, "elapsed_ms": ms}
        for rank, units, each in ((0, 6, (5.0, 27.0)), (1, 26, (20.0, 21.0)))
        for ms in each
    ]
    assert strategies_of(older) == (StrategyRuns("round_robin", (6.0, 26.0), (20.0, 27.0)),)


def test_a_strategy_that_is_not_there_is_named():
    with pytest.raises(InputError, match="no row has the strategy least_loaded; found round_robin"):
        judge_mechanism(strategies_of(rows()[:1]), "m.json", 0.95)
