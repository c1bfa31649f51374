"""Errors by hand: which figure is off by how much, and which stage is to blame."""

from __future__ import annotations

import json

import msgspec
import pytest

from pointsman.bench.prediction.measured_group import (
    MeasuredGroup,
    cached_token_fraction,
    measured_group,
)
from pointsman.bench.prediction.predicted import Predicted
from pointsman.bench.prediction.report import against
from pointsman.bench.prediction.stages import stages_of
from pointsman.bench.stages.rows import JoinedRow
from pointsman.core.errors import InputError
from pointsman.evidence.envelope import Bounds, Failure
from pointsman.report.prediction import prediction_text
from tests.bench.prediction.made import COSTS, MADE_AT, metrics, row
from tests.evidence.groups import MOVED, ONE, SLOW, SPLIT, group

MEASURED = {"ttft_ms": 100.0, "e2e_ms": 300.0, "tpot_ms": 10.0, "queue_wait_ms": 40.0}


def predicted(name: str = "g1", is_split: bool = False, **values: float) -> Predicted:
    made = metrics(**values)
    return Predicted(
        schema="pointsman.prediction/1",
        group=name,
        policy="round_robin",
        made_at=MADE_AT,
        fitted_to="g0",
        is_fitted=False,
        metrics=made,
        reasons={},
        stages=stages_of(made, is_split),
        cached_token_fraction=0.5,
        seeds=(0,),
        costs=COSTS,
        overhead_ms=0.0,
        costs_sha256="ab" * 32,
        workload_sha256=None,
        remarks=(),
    )


def measured(name: str = "g1", **values: float) -> MeasuredGroup:
    found = metrics(**{**MEASURED, **values})
    intervals = {"ttft_ms": Bounds(low=90.0, high=110.0, level=0.95, n=3)}
    return MeasuredGroup(name, found, intervals, cached_token_fraction=0.49)


def report_of(ours: Predicted, theirs: MeasuredGroup):
    return against([ours], {theirs.name: theirs}).groups[0]


def test_errors_are_relative_to_what_was_measured_and_inside_the_interval_or_not():
    found = report_of(predicted(**{**MEASURED, "ttft_ms": 120.0, "e2e_ms": 270.0}), measured())
    figures = {each.name: each for each in found.figures}
    assert figures["ttft_ms"].error == pytest.approx(0.2)
    assert figures["ttft_ms"].is_inside is False
    assert figures["e2e_ms"].error == pytest.approx(-0.1)
    assert figures["e2e_ms"].is_inside is None  # no interval
    assert figures["p99_ms"].error is None


def test_stages_are_what_the_means_leave():
    found = report_of(predicted(**MEASURED), measured())
    assert [(each.name, each.measured_ms) for each in found.stages] == [
        ("queue_ms", 40.0),
        ("prefill_ms", 60.0),
        ("handoff_ms", 0.0),
        ("decode_ms", 200.0),
    ]


def test_the_error_of_a_stage_is_relative_to_what_it_was_measured_to_take():
    # Queue 40 + 10 of 40; the prefill 60 as measured; of no hand-off there is no error.
    ours = predicted(**{**MEASURED, "ttft_ms": 110.0, "queue_wait_ms": 50.0, "e2e_ms": 310.0})
    errors = [each.error for each in report_of(ours, measured()).stages]
    assert errors == [pytest.approx(0.25), 0.0, None, 0.0]


def test_within_ten_per_cent_no_stage_is_blamed():
    found = report_of(predicted(**{**MEASURED, "ttft_ms": 109.9, "tpot_ms": 9.1}), measured())
    assert found.sentences == ()


def test_the_stage_before_the_first_token_that_is_most_out_is_named():
    # Queue 40 + 5, prefill 60 + 20: the prefill is off by more.
    ours = predicted(**{**MEASURED, "ttft_ms": 125.0, "queue_wait_ms": 45.0})
    [sentence] = report_of(ours, measured()).sentences
    assert "mean TTFT is predicted 25.0% above what was measured" in sentence
    assert "off is above all the prefill (queue +5 ms, prefill +20 ms" in sentence


def test_a_queue_that_is_off_is_told_from_the_prefill():
    ours = predicted(**{**MEASURED, "ttft_ms": 70.0, "queue_wait_ms": 10.0})
    [sentence] = report_of(ours, measured()).sentences
    assert "off is above all the queue" in sentence


def test_a_hand_off_can_be_the_stage_that_is_off():
    values = {**MEASURED, "ttft_ms": 150.0, "kv_handoff_ms": 60.0}
    theirs = MeasuredGroup("g1", metrics(**{**MEASURED, "kv_handoff_ms": 10.0}), {}, is_split=True)
    [sentence] = report_of(predicted(is_split=True, **values), theirs).sentences
    assert "off is above all the hand-off" in sentence


def test_without_the_engines_queue_no_stage_is_guessed():
    ours = predicted(**{**MEASURED, "ttft_ms": 130.0})
    theirs = MeasuredGroup("g1", metrics(ttft_ms=100.0, e2e_ms=300.0, tpot_ms=10.0), {})
    [sentence] = report_of(ours, theirs).sentences
    assert "not both sides say what queue and prefill took" in sentence


def test_a_tpot_that_is_off_blames_the_decode():
    [sentence] = report_of(predicted(**{**MEASURED, "tpot_ms": 8.0}), measured()).sentences
    assert "mean TPOT is predicted 20.0% below" in sentence
    assert "decode" in sentence


def test_cache_hits_that_are_off_are_said_with_both_fractions():
    theirs = MeasuredGroup("g1", metrics(**MEASURED), {}, cached_token_fraction=0.25)
    [sentence] = report_of(predicted(**MEASURED), theirs).sentences
    assert "50.0% of the prompt tokens are predicted to be cached, and 25.0% were" in sentence


def test_of_a_pair_nobody_tells_what_its_prefill_replica_had_cached():
    """The decode engine tells of what was handed over to it: nearly all."""
    row = JoinedRow(
        number=0,
        request_id="r0",
        asked_prompt_tokens=10,
        asked_output_tokens=2,
        intended_ms=0.0,
        cached_tokens=9,
        status="ok",
    )
    assert measured_group(group("g1", ONE, SLOW), [row]).cached_token_fraction == 0.9
    assert measured_group(group("g2", SPLIT, MOVED, (9, 1)), [row]).cached_token_fraction is None


def test_the_order_of_groups_counts_only_pairs_that_are_known():
    first = measured("a")
    second = MeasuredGroup(
        "b",
        metrics(**{**MEASURED, "ttft_ms": 50.0}),
        {"ttft_ms": Bounds(low=45.0, high=55.0, level=0.95, n=3)},
    )
    both = [predicted("a", **MEASURED), predicted("b", **{**MEASURED, "ttft_ms": 60.0})]
    found = against(both, {"a": first, "b": second})
    assert (found.ranking["ttft_ms"].right, found.ranking["ttft_ms"].counted) == (1, 1)
    assert (found.in_order.right, found.in_order.counted) == (1, 1)
    assert "of 1 pairs" in prediction_text(found, "table")


def test_a_group_that_failed_or_did_not_run_is_not_compared_and_said():
    lost = msgspec.structs.replace(
        group("g1", ONE, SLOW), failure=Failure(stage="start", reason="no port", retry="again")
    )
    both = [predicted("g1", **MEASURED), predicted("g2", **MEASURED)]
    found = against(both, {"g1": measured_group(lost)})
    assert found.groups == ()
    assert found.not_measured == {"g1": "no port", "g2": "it did not run"}


def test_a_group_of_the_evidence_brings_its_metrics_and_intervals():
    made = group("g0", ONE, SLOW)
    bounds = Bounds(low=390.0, high=430.0, level=0.95, n=3)
    ttft = msgspec.structs.replace(made.details["ttft_ms"], interval=bounds)
    made = msgspec.structs.replace(made, details={**made.details, "ttft_ms": ttft})
    found = measured_group(made, [row(0, cached_tokens=30), row(1, cached_tokens=None)])
    assert found.metrics == made.metrics
    assert found.intervals == {"ttft_ms": bounds}
    assert found.cached_token_fraction == 0.3  # of the row that says


def test_the_warm_up_and_what_failed_tell_nothing_of_the_cache():
    rows = [row(0, is_warmup=True, cached_tokens=90), row(1, status="error", cached_tokens=90)]
    assert cached_token_fraction(rows) is None


def test_a_measured_group_that_nobody_predicted_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"measured group 'g1x' is unknown.*did you mean g1\?"):
        against([predicted("g1")], {"g1x": measured("g1x")})


def test_two_predictions_of_one_group_and_none_at_all_are_refused():
    with pytest.raises(InputError, match="two are of g1"):
        against([predicted("g1"), predicted("g1")], {})
    with pytest.raises(InputError, match="there is none; expected at least one"):
        against([], {})


def test_the_document_holds_what_the_table_shows():
    report = against([predicted(**MEASURED)], {"g1": measured()})
    found = json.loads(prediction_text(report, "json"))
    assert found["schema"] == "pointsman.prediction_report/1"
    assert found["groups"][0]["figures"][0]["predicted"] == 100.0
    assert "g1, round_robin" in prediction_text(report, "table")
