"""Wins, ties and losses, from loads given by hand."""

from __future__ import annotations

import pytest

from pointsman.comparison.bench_fleets import fleet_named
from pointsman.comparison.held_load import AtLoad, HeldLoad
from pointsman.comparison.load_bench import CellResult
from pointsman.comparison.load_verdict import best_peer, standing, summary, verdict


def held(load_ratio, worst_ttft_ms=4000.0):
    figures = AtLoad(load_ratio, 0.95, 2000.0, worst_ttft_ms, 50.0, 0.5, 600_000.0)
    return HeldLoad(load_ratio, figures if load_ratio else None, 5, 1.0)


def cell(trace="a", tail_worst_ms=None, **loads):
    found = {name: held(load) for name, load in loads.items()}
    tail = None
    if tail_worst_ms is not None:
        tail = AtLoad(1.0, 0.95, 1.0, tail_worst_ms, 1.0, 0.0, 1.0)
    return CellResult(trace, fleet_named("4"), 100, 1, 5.0, found, None, tail, held(1.0))


def stood(**loads):
    return standing(cell(**loads), 1.012)


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (1.0, 1.0, "tie"),
        (1.02, 1.0, "tie"),
        (1.0, 1.02, "tie"),
        (1.021, 1.0, "win"),
        (1.0, 1.021, "loss"),
        (0.0, 0.0, "tie"),
        (0.1, 0.0, "win"),
        (0.0, 0.1, "loss"),
    ],
)
def test_loads_within_two_percent_are_a_tie(ours, theirs, expected):
    assert verdict(ours, theirs, 1.012) == expected


def test_loads_that_were_told_apart_more_coarsely_are_a_tie_within_one_step():
    assert verdict(1.05**4, 1.05**3, 1.05) == "tie"
    assert verdict(1.05**3, 1.05**4, 1.05) == "tie"
    assert verdict(1.05**5, 1.05**3, 1.05) == "win"


def test_the_best_peer_is_of_another_project_and_at_its_defaults():
    loads = {"round_robin": 9.0, "lmetric": 2.0, "preble": 3.0, "fewest_misses": 5.0}
    found = cell(**loads, **{"dynamo_kv:overlap_weight=2": 8.0})
    assert best_peer(found) == "preble"
    assert standing(found, 1.012).load_ratio == pytest.approx(5 / 3)


def test_of_equal_peers_the_first_is_named():
    assert best_peer(cell(preble=2.0, lmetric=2.0)) == "preble"


def test_without_a_peer_or_our_rule_nothing_stands():
    assert stood(fewest_misses=1.0, round_robin=1.0) is None
    assert stood(lmetric=1.0) is None


def test_where_no_peer_holds_anything_there_is_a_win_and_no_ratio():
    found = stood(fewest_misses=1.0, lmetric=0.0)
    assert (found.verdict, found.load_ratio) == ("win", None)


def test_the_tail_is_ours_over_the_references_at_the_load_that_it_holds():
    found = standing(
        cell(tail_worst_ms=3000.0, fewest_misses=2.0, lmetric=1.0, earliest_first_token=1.0), 1.012
    )
    assert found.worst_ttft_ratio == 0.75
    assert stood(fewest_misses=2.0, lmetric=1.0, earliest_first_token=0.0).worst_ttft_ratio is None


def test_a_summary_counts_and_takes_geometric_means():
    """2, 1 and 1/4: the cube root of a half."""
    standings = [
        stood(trace="a", fewest_misses=2.0, lmetric=1.0),
        stood(trace="b", fewest_misses=1.0, lmetric=1.0),
        stood(trace="c", fewest_misses=1.0, lmetric=4.0),
        stood(trace="d", fewest_misses=1.0, lmetric=0.0),
    ]
    total = summary(standings)
    assert (total.wins, total.ties, total.losses) == (2, 1, 1)
    assert total.geometric_mean_ratio == pytest.approx(0.5 ** (1 / 3))
    assert total.worst.cell.trace == "c"
    assert total.geometric_mean_worst_ttft_ratio is None


def test_a_rule_that_holds_nothing_somewhere_has_a_mean_of_nothing():
    total = summary([stood(fewest_misses=0.0, lmetric=1.0), stood(fewest_misses=3.0, lmetric=1.0)])
    assert total.geometric_mean_ratio == 0.0


def test_no_standings_have_no_means():
    total = summary([])
    assert (total.wins, total.worst, total.geometric_mean_ratio) == (0, None, None)
