"""The one sentence on a fleet: a policy only where the intervals leave its lead standing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pointsman import POLICIES, workload_of_columns
from pointsman.comparison.differences import COMPARED, Difference, outcome_of
from pointsman.comparison.fleet_advice import advise_on_fleet
from pointsman.comparison.fleets import FleetComparison, FleetResult, Trial
from pointsman.costs.calibrated import read_calibrated
from pointsman.fleet.description import FleetDescription
from pointsman.fleet.groups import Group, Recorded
from pointsman.metrics.goodput import Goodput, Objectives
from pointsman.metrics.latency import Spread
from pointsman.metrics.replicas import Skews
from pointsman.metrics.serving import serving_metrics
from pointsman.sim.batching import simulate_fleet
from pointsman.sim.outcome import answers_of, loads_of
from pointsman.verdict.uncertainty import Interval
from tests.fleet.cost_files import write_costs

WORKLOAD = workload_of_columns([0.0] * 100, prompt_tokens=[1] * 100, output_tokens=[1] * 100)
BETTER_SIGN = {each.name: each.better for each in COMPARED}


@pytest.fixture
def compared(tmp_path):
    """A comparison of results, each a name, goodput, P95 TTFT and bounds of its differences."""
    path = write_costs(tmp_path / "costs.json")
    group = Group(count=1, hardware=Recorded("costs.json", read_calibrated(path)))
    description = FleetDescription(groups=(group,))
    fleet = description.assembled(WORKLOAD)
    run = simulate_fleet(WORKLOAD, POLICIES["round_robin"], fleet)
    answers = answers_of(run)
    metrics = serving_metrics(answers, loads_of(run), None, 1)
    outcome = outcome_of(answers, None)

    def result(name, goodput, p95_ms, **bounds) -> FleetResult:
        met = None
        if goodput is not None:
            met = Goodput(Objectives(1.0), 100, int(100 * goodput), goodput, 1.0, 0)
        return FleetResult(
            policy=POLICIES[name],
            name=name,
            metrics=replace(metrics, goodput=met, ttft_ms=Spread(100, p95=p95_ms)),
            reasons={},
            replicas=metrics.replicas,
            skews={},
            outcome=outcome,
            to_best=tuple(
                Difference(
                    figure,
                    BETTER_SIGN[figure],
                    Interval((low + high) / 2, low, high, level=0.95, n=100, magnitude=100.0),
                )
                for figure, (low, high) in bounds.items()
            ),
        )

    def comparison(*rows) -> FleetComparison:
        results = tuple(result(name, *figures, **bounds) for name, figures, bounds in rows)
        baseline = results[0].policy
        return FleetComparison(WORKLOAD, description, fleet, Trial(), baseline, results, ())

    return comparison


def test_the_best_goodput_is_taken_where_its_lead_stands(compared):
    advice = advise_on_fleet(
        compared(
            ("queue_aware", (0.9, 50.0), {}),
            (
                "random",
                (0.8, 70.0),
                {"goodput_fraction": (-0.14, -0.06), "mean_e2e_ms": (-30.0, -10.0)},
            ),
        )
    )
    assert advice.policy == "queue_aware"
    assert advice.sentence == (
        "Take queue_aware: goodput 90.0% against 80.0% (random). Nearest is random, worse by 6.00"
        " to 14.00 points (at 95%); that stands while the model is off by less than 0.06%,"
        " whichever way. The price: mean E2E of random is 10.0 to 30.0 ms (at 95%) better."
    )


def test_goodputs_that_are_not_told_apart_leave_it_to_the_p95_ttft(compared):
    advice = advise_on_fleet(
        compared(
            ("queue_aware", (0.9, 50.0), {}),
            ("random", (0.9, 70.0), {"goodput_fraction": (-0.1, 0.1), "p95_ttft_ms": (5, 35)}),
            ("round_robin", (0.5, 90.0), {"goodput_fraction": (-0.5, -0.3)}),
        )
    )
    assert advice.policy == "queue_aware"
    assert advice.sentence.startswith(
        "Take queue_aware: goodput 90.0% against 50.0% (round_robin); P95 TTFT 50.0 ms against"
        " 70.0 ms (random), at goodputs not told apart."
    )


def test_no_policy_is_named_where_one_other_is_not_told_from_the_best(compared):
    advice = advise_on_fleet(
        compared(
            ("locality_aware", (None, 50.0), {}),
            ("queue_aware", (None, 52.0), {"p95_ttft_ms": (-3.0, 7.0)}),
            ("random", (None, 90.0), {"p95_ttft_ms": (30.0, 50.0)}),
        )
    )
    assert (advice.policy, advice.label) == (None, None)
    assert advice.sentence == (
        "Nothing on this workload tells locality_aware from queue_aware: P95 TTFT 50.0 ms"
        " against 52.0 ms (queue_aware, a difference of -3.0 to 7.0 ms). Of these, queue_aware"
        " reads the fewest signals. Worse: random (90.0 ms)."
    )


def test_a_tie_says_which_other_figures_tell_the_two_apart(compared):
    comparison = compared(
        ("locality_aware", (0.9, 50.0), {}),
        (
            "queue_aware",
            (0.9, 48.0),
            {
                "goodput_fraction": (-0.1, 0.1),
                "p95_ttft_ms": (-4.0, -1.0),
                "mean_ttft_ms": (-3.0, 7.0),
                "mean_e2e_ms": (5.0, 9.0),
            },
        ),
    )
    assert (
        "(queue_aware, a difference of -10.00 to 10.00 points). Yet P95 TTFT of queue_aware is 1.0"
        " to 4.0 ms (at 95%) better; mean E2E of queue_aware is 5.0 to 9.0 ms (at 95%) worse. Of"
        " these, queue_aware reads the fewest signals."
    ) in advise_on_fleet(comparison).sentence


@pytest.mark.parametrize(
    ("cached", "skews", "words"),
    [
        (0.5, (0.1, 0.1), " Seen, without an interval: cached prompt tokens 62.0% against 50.0%"),
        (0.6, (0.1, 0.9), " Seen, without an interval: token skew 0.10 against 0.90 (random). "),
        (0.6, (0.1, 0.2), None),
        (None, (0.1, 0.1), None),
    ],
)
def test_a_tie_says_where_hits_or_loads_are_far_apart(compared, cached, skews, words):
    comparison = compared(
        ("queue_aware", (None, 50.0), {}), ("random", (None, 52.0), {"p95_ttft_ms": (-3.0, 7.0)})
    )
    results = tuple(
        replace(
            result,
            metrics=replace(result.metrics, cached_token_fraction=fraction),
            skews={"all": Skews(requests=0.0, tokens=skew, busy=0.0)},
        )
        for result, fraction, skew in zip(comparison.results, (0.62, cached), skews, strict=True)
    )
    sentence = advise_on_fleet(replace(comparison, results=results)).sentence
    assert "Seen" not in sentence if words is None else words in sentence


def test_one_policy_alone_is_not_recommended(compared):
    advice = advise_on_fleet(compared(("random", (None, 50.0), {})))
    assert advice.policy is None
    assert advice.sentence == "Only random was run: P95 TTFT 50.0 ms."


def test_objectives_that_nobody_meets_are_said_and_the_p95_ttft_is_shown(compared):
    advice = advise_on_fleet(
        compared(
            ("queue_aware", (0.0, 50.0), {}),
            ("random", (0.0, 52.0), {"goodput_fraction": (0.0, 0.0), "p95_ttft_ms": (-1.0, 5.0)}),
        )
    )
    assert advice.sentence == (
        "Nothing on this workload tells queue_aware from random: P95 TTFT 50.0 ms against 52.0 ms"
        " (random, a difference of -1.0 to 5.0 ms). Of these, queue_aware reads the fewest signals."
        " No request met the objectives, whatever the policy."
    )
