"""Accept, tune or reject, from figures that are given."""

from __future__ import annotations

import pytest

from pointsman.plan.difference import Difference, Estimate
from pointsman.plan.judgement import Evidence, Pair, judge
from pointsman.plan.rate import NEVER, RateLimit
from tests.plan import made
from tests.plan.made import metrics_of

HALF = Estimate(0.5, 0.45, 0.55)
DOUBLE = Estimate(2.0, 1.9, 2.1)
FAR = RateLimit(2.0, 2.04)


def judged(candidate, *, ratio=HALF, limit=FAR, error=0.1, others=None, unfilled=None):
    """Against a baseline of 1,000 ms; ``others`` are the candidate by slowness."""
    baseline = metrics_of(1000.0)
    found = Difference(ratio, Estimate(0.0, 0.0, 0.0), 0.95, 100)
    worlds = others or (lambda _: candidate)
    evidence = Evidence(
        Pair(baseline, candidate),
        limit,
        found,
        lambda slowness: Pair(baseline, worlds(slowness)),
        None if unfilled is None else lambda: Pair(baseline, unfilled),
    )
    return judge(evidence, made.question(model_error_fraction=error))


def test_what_is_faster_even_quiet_and_in_time_is_accepted_with_its_figures():
    found = judged(metrics_of(500.0, imbalance_ratio=0.8, comm_cost_ms=50.0))
    assert (found.decision, found.next_action) == ("accept", "promote_to_real_cluster_check")
    for figure in ("500 ms", "1,000 ms", "0.8", "0.05", "100.00%", "2 times the rate", "0.55"):
        assert figure in found.reason
    assert not found.near_saturation


@pytest.mark.parametrize("changes", [{"imbalance_ratio": 0.81}, {"comm_cost_ms": 50.1}])
def test_beyond_the_lessons_thresholds_it_is_tuned(changes):
    found = judged(metrics_of(500.0, **changes))
    assert (found.decision, found.next_action) == ("tune", "refine_routing_or_parallel_degree")


def test_what_is_not_faster_is_rejected():
    found = judged(metrics_of(1500.0), ratio=DOUBLE)
    assert (found.decision, found.next_action) == ("reject", "fallback_to_single_replica_audit")


def test_what_misses_the_objectives_is_never_accepted():
    found = judged(metrics_of(500.0, kept=94), limit=RateLimit(0.5, 0.51))
    assert (found.decision, found.next_action) == ("tune", "add_gpus_or_lower_the_rate")
    assert "misses the objectives in 94.00% of requests against 95.00%" in found.reason
    never = judged(metrics_of(500.0, kept=94), limit=NEVER)
    assert never.next_action == "relax_objectives_or_change_the_hardware"


@pytest.mark.parametrize(("makespan_ms", "ratio"), [(500.0, HALF), (1500.0, DOUBLE)])
def test_an_interval_that_holds_one_supports_neither_accept_nor_reject(makespan_ms, ratio):
    wide = Estimate(ratio.estimate, 0.9, 1.1)
    found = judged(metrics_of(makespan_ms), ratio=wide)
    assert found.decision == "tune"
    assert found.next_action == "repeat_with_more_requests_or_replications"


def test_a_model_error_that_explains_the_difference_makes_it_undecided_with_the_margin():
    """At most 0.55 of the time: (1 - 0.55) / (1 + 0.55) = 29 % explain it."""
    assert judged(metrics_of(500.0), error=0.29).decision == "accept"
    found = judged(metrics_of(500.0), error=0.30)
    assert found.decision == "tune"
    assert found.undecided_error_fraction == pytest.approx(0.45 / 1.55)
    assert "below 29.0% it is accept" in found.reason


def test_near_saturation_it_is_undecided_with_the_margin():
    found = judged(metrics_of(500.0), limit=RateLimit(1.06, 1.08))
    assert (found.decision, found.near_saturation) == ("tune", True)
    assert found.undecided_error_fraction == pytest.approx(0.06)
    below = judged(metrics_of(500.0, kept=90), limit=RateLimit(0.93, 0.95))
    assert below.undecided_error_fraction == pytest.approx(1.0 / 0.95 - 1.0)
    assert below.reason.startswith("undecided: near saturation")
    assert below.next_action == "calibrate_costs_on_this_hardware"
    chatty = judged(metrics_of(500.0, comm_cost_ms=60.0), limit=RateLimit(1.06, 1.08))
    assert (chatty.decision, chatty.near_saturation) == ("tune", True)
    assert chatty.next_action == "refine_routing_or_parallel_degree"


def test_other_service_times_that_turn_it_make_it_undecided_with_the_margin():
    """Above 1.055 times as long it misses; 0.1 is halved to 0.05, which stands, then 0.075,
    0.0625 and 0.05625, which do not."""
    turning = judged(
        metrics_of(500.0),
        others=lambda slowness: metrics_of(500.0, kept=100 if slowness <= 1.055 else 90),
    )
    assert turning.decision == "tune"
    assert turning.undecided_error_fraction == pytest.approx(0.05)
    assert "calibrate" in turning.next_action


def test_what_rests_on_full_pipelines_is_not_accepted():
    assert judged(metrics_of(500.0), unfilled=metrics_of(900.0)).decision == "accept"
    found = judged(metrics_of(500.0), unfilled=metrics_of(900.0, kept=50))
    assert found.decision == "tune"
    assert "accept rests on full pipelines, with one batch in them it is tune" in found.reason
