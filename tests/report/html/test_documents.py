"""Pages of documents: figures are those of the JSON, and what is no result is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy

import pytest

from pointsman import POLICIES, FifoFleet, workload_of_columns
from pointsman.comparison.policies import compare_policies
from pointsman.core.errors import InputError
from pointsman.metrics.distribution import QUANTILE_LEVELS
from pointsman.replay.replay import Difference, Replay
from pointsman.report.document import comparison_document, text_of
from pointsman.report.html.page import page_of, page_of_document
from pointsman.report.html.result import Result
from pointsman.report.html.sources.documents import READERS, result_of
from pointsman.report.html.sources.files import results_at
from pointsman.report.html.views.locality import locality
from pointsman.report.replay import replay_document
from pointsman.workload.reading import ReadOptions
from tests.report.html.sound import SOUND


@pytest.fixture(scope="module")
def document() -> dict:
    """A comparison of two policies on two replicas, as its command makes it."""
    count = 200
    workload = workload_of_columns(
        [10.0 * k for k in range(count)],
        service_ms=[5.0 + 40.0 * (k % 3) for k in range(count)],
        session=[k % 7 for k in range(count)],
    )
    policies = [POLICIES["round_robin"], POLICIES["locality_aware"]]
    return comparison_document(compare_policies(workload, policies, FifoFleet(2)), ReadOptions())


@pytest.fixture(scope="module")
def compared(document) -> dict:
    """The same from its JSON."""
    return json.loads(text_of(document))


def test_figures_of_the_answer_are_those_of_the_json(compared):
    result = result_of(compared, "trace")
    for row, each in zip(result.tables[0].rows, compared["results"], strict=True):
        m = each["metrics"]
        assert row[0] == each["label"]
        assert row[1:4] == tuple(m[f"p{q}_queue_wait_ms"] for q in (50, 95, 99))
        assert row[-1] == m["throughput_requests_per_s"]
    assert result.verdict == compared["advice"]["sentence"]


def test_percentiles_of_the_json_are_points_of_the_distribution(compared):
    for run, each in zip(result_of(compared, "t").runs, compared["results"], strict=True):
        quantiles = dict(zip(QUANTILE_LEVELS, run.latencies["e2e_ms"].quantiles, strict=True))
        m = each["metrics"]
        assert quantiles[0.5] == m["p50_latency_ms"]
        assert quantiles[0.99] == m["p99_latency_ms"]
        assert quantiles[1.0] == m["max_latency_ms"]


def test_reasons_over_time_add_up_to_the_reasons(compared):
    for each in compared["results"]:
        over = each["reasons_over_time"]["counts"]
        assert {name: sum(counts) for name, counts in over.items()} == each["reasons"]


def test_every_digit_of_the_json_is_on_the_page(compared):
    page = page_of_document(compared, "trace")
    cells = set(re.findall(r"<td>([^<]*)</td>", page))
    for each in compared["results"]:
        for values in each["quantiles"].values():
            assert {json.dumps(value) for value in values} <= cells


def test_a_page_of_the_document_is_the_page_of_its_file(tmp_path, document):
    path = tmp_path / "trace.json"
    path.write_text(text_of(document))
    assert page_of(results_at([path])) == page_of_document(document, "trace")


def test_results_of_an_earlier_version_have_no_distributions_and_are_still_shown(compared):
    earlier = deepcopy(compared)
    for each in earlier["results"]:
        del each["quantiles"], each["reasons_over_time"]
    page = page_of([result_of(earlier, "trace")])
    assert "Distributions of latencies: no quantiles" in page


def test_a_replay_says_how_many_choices_agree():
    difference = Difference(3, "r3", 12.25, "http://a", "home", "http://b", "home")
    replay = Replay("queue_aware", "round_robin", 2000, [difference], 1, 0)
    document = json.loads(text_of(replay_document(replay, None)))
    result = result_of(document, "log")
    assert result.verdict.startswith("1,999 of 2,000 choices of queue_aware come out the same")
    assert result.tables[0].rows[0][3] == "http://a (home)"
    assert "When do choices differ" in page_of([result])


CALIBRATION = {
    "schema": "pointsman.calibration/1",
    "recording": "runs/a",
    "n": 300,
    "fitted": 100,
    "figures": {"ttft_ms": {"mean": {"recorded": 100.0, "simulated": 103.0}}},
    "figures_not_fitted": {"ttft_ms": {"mean": {"recorded": 200.0, "simulated": 190.0}}},
}


def test_a_calibration_is_prediction_against_measurement():
    result = result_of(CALIBRATION, "calibration")
    assert [each.error_fraction for each in result.predictions] == pytest.approx([0.03, -0.05])
    assert "190 ms against 200 ms (-5.0%)" in result.verdict


REPEATED = CALIBRATION | {
    "figures": {
        "ttft_ms": {
            "mean": {"recorded": 100.0, "simulated": 103.0},
            "p50": {"recorded": 0.0, "simulated": 9.0},
        }
    },
    "errors": {"ttft_ms": {"mean": 0.03125, "p50": None}},
    "figures_not_fitted": None,
    "repeats": ["runs/b"],
    "noise": {"ttft_ms": {"mean": 0.0625, "p50": None}},
    "within_noise": {"ttft_ms": {"mean": True, "p50": None}},
}


def test_errors_of_a_calibration_stand_beside_how_much_recorded_runs_differ():
    result = result_of(REPEATED, "calibration")
    table = result.tables[0]
    assert [column.heading for column in table.columns[5:]] == ["error", "noise", "error is"]
    assert [row[5:] for row in table.rows] == [
        (0.03125, 0.0625, "within it"),
        (None, None, "-"),
    ]
    assert "(+3.1%, within what recorded runs differ by)" in result.verdict


def test_where_no_error_is_known_a_calibration_says_so():
    nothing = {"ttft_ms": {"mean": {"recorded": 0.0, "simulated": 9.0}}}
    document = CALIBRATION | {"figures": nothing, "figures_not_fitted": None}
    verdict = result_of(document, "calibration").verdict
    assert verdict.startswith("Every figure was recorded as 0")


PREDICTION = {
    "schema": "pointsman.prediction_report/1",
    "tolerance": 0.1,
    "groups": [
        {
            "group": "g1",
            "policy": "round_robin",
            "is_fitted": False,
            "figures": [
                {
                    "name": "p95_ms",
                    "unit": "ms",
                    "predicted": 110.0,
                    "measured": 100.0,
                    "low": 90.0,
                    "high": 120.0,
                    "error": 0.1,
                    "is_inside": True,
                    "reason": None,
                }
            ],
            "stages": [
                {"name": "decode_ms", "predicted_ms": 30.0, "measured_ms": 40.0, "off_ms": -10.0}
            ],
            "predicted_cached_fraction": None,
            "measured_cached_fraction": None,
            "sentences": ["mean TTFT is off"],
        }
    ],
    "ranking": {},
    "in_order": {"right": 3, "counted": 4, "overlapping": 1, "without_interval": 0, "wrong": []},
    "not_measured": {"g2": "it did not run"},
}


def test_a_report_of_predictions_has_errors_by_stage_and_figure():
    result = result_of(PREDICTION, "prediction")
    errors = {(e.subject, e.figure): e.error_fraction for e in result.predictions}
    assert errors == pytest.approx({("decode stage", "mean"): -0.25, ("E2E", "p95"): 0.1})
    assert "Of 4 pairs of figures that the measurement tells apart, 3 were" in result.verdict
    assert result.warnings == ("g2 was predicted and not measured: it did not run",)
    assert result.tables[0].notes == ("g1: mean TTFT is off.",)


def at(load_ratio, goodput_fraction):
    unknown = dict.fromkeys(("p99_ttft_ms", "p99_tpot_ms", "cached_token_fraction"))
    return {"load_ratio": load_ratio, "goodput_fraction": goodput_fraction, **unknown}


@pytest.mark.parametrize(
    ("held", "tried", "failed"),
    [
        (1.0, [at(1.0, 0.97), at(1.2, 0.9), at(4.0, 0.1)], 1.2),
        (0.0, [at(0.5, 0.1), at(0.1, 0.2)], 0.1),  # nothing is held down to there
        (1.0, [at(1.0, 0.97)], None),
    ],
)
def test_a_bench_says_at_which_load_tried_too_few_kept_the_objectives(held, tried, failed):
    policy = {"policy": "p", "whose": "yours", "load_ratio": held, "at": None, "tried": tried}
    cell = {"trace": "t", "fleet": "4", "requests": 9, "rate_rps": 1.0, "policies": [policy]}
    document = {
        "schema": "pointsman.policies-bench/1",
        "model": "m",
        "objectives": {"ttft_ms": 1.0},
        "attainment_fraction": 0.95,
        "tolerance_ratio": 1.5,
        "seed": 0,
        "simulations": len(tried),
        "simulated_hours": 1.0,
        "cells": [cell],
        "summary": None,
    }
    (run,) = result_of(document, "x").runs
    assert (run.held.held, run.held.failed) == (held, failed)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([1], "x: no JSON object; expected a result of pointsman"),
        ({}, "x: schema is missing; expected one of pointsman.calibration/1"),
        ({"schema": "pointsman.compar/1"}, "did you mean pointsman.compare/1?"),
        (
            {"schema": "pointsman.compare/2", "pointsman": "9.0"},
            "schema is 'pointsman.compare/2', written by pointsman 9.0; this version reads"
            " pointsman.compare/1: expected a result that it wrote, so run the command again",
        ),
        ({"schema": 5}, "x: schema '5' is unknown; expected one of pointsman.calibration/1"),
        ({"schema": "pointsman.plan/1"}, "missing required field `workload`"),
    ],
)
def test_what_is_no_result_is_refused_by_name(document, message):
    with pytest.raises(InputError) as error:
        result_of(document, "x")
    assert message in str(error.value)
    assert str(error.value).startswith("x:")


def shares(result: Result) -> list[str]:
    """What is beyond the bound, as the titles of its charts say."""
    return [re.search(r"\((.*)\)", chart.title)[1] for chart in locality(result.runs).charts]


AUDIT = {
    **{"choices": 200, "bound_ms": 5.0, "over_bound": 3, "over_bound_fraction": 0.25},
    **{name: {"count": 1, "mean": 1.0} for name in ("expected_extra_ms", "realised_extra_ms")},
}


def changed(document: dict, place: str, value: object) -> dict:
    """A copy with another value at a place such as ``groups[0].figures``."""
    copy = json.loads(json.dumps(document))
    *above, last = re.findall(r"[^.\[\]]+", place)
    at = copy
    for key in above:
        at = at[int(key)] if isinstance(at, list) else at[key]
    at[int(last) if isinstance(at, list) else last] = value
    return copy


@pytest.fixture(scope="module")
def sound(compared) -> dict[str, dict]:
    """A document of every kind, by its schema."""
    here = (compared, CALIBRATION, PREDICTION)
    return SOUND | {document["schema"]: document for document in here}


STATED = {
    "calibration/1": ("errors", {"ttft_ms": {"mean": 0.5}}),
    "prediction_report/1": ("groups[0].stages[0].error", 0.5),
    "policies-bench/1": ("cells[0].policies[0].requests_per_s", 7.25),
    "plan/1": ("shapes[0].interval.goodput_difference.verdict", "worse"),
    "compare/1": ("results[0].locality_audit", AUDIT),
}


@pytest.mark.parametrize(
    ("kind", "shown", "wanted"),
    [
        ("calibration/1", lambda result: result.predictions[0].error_fraction, 0.5),
        ("prediction_report/1", lambda result: result.predictions[0].error_fraction, 0.5),
        ("policies-bench/1", lambda result: result.tables[0].rows[0][5], 7.25),
        ("plan/1", lambda result: result.runs[0].differences[1].verdict, "worse"),
        ("compare/1", lambda result: shares(result)[0], "25.0%"),
    ],
)
def test_what_a_document_states_is_shown_and_not_computed_again(sound, kind, shown, wanted):
    """Each figure is another one than would follow from the rest of its document."""
    schema = f"pointsman.{kind}"
    assert shown(result_of(changed(sound[schema], *STATED[kind]), "x")) == wanted


def test_a_page_can_be_made_of_every_sound_document(sound):
    assert set(sound) == set(READERS)
    for document in sound.values():
        assert page_of([result_of(document, "x")]).startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ("pointsman.calibration/1", "fitted"),
        ("pointsman.compare/1", "results[0].metrics.p95_latency_ms"),
        ("pointsman.fleet-comparison/1", "results[0].to_baseline[0].interval.level"),
        ("pointsman.plan/1", "shapes[0].max_rate.times_offered"),
        ("pointsman.policies-bench/1", "cells[0].policies[0].tried[0].load_ratio"),
        ("pointsman.replay/1", "differences[0].time_ms"),
        ("pointsman.prediction_report/1", "groups[0].figures[0].predicted"),
    ],
)
def test_a_damaged_field_is_named_with_its_place(sound, schema, place):
    with pytest.raises(InputError) as error:
        result_of(changed(sound[schema], place, "soon"), "x")
    assert str(error.value).startswith("x: Expected `")
    assert f" - at `$.{place}`; expected a result as this version" in str(error.value)


@pytest.mark.parametrize(
    ("schema", "place", "message"),
    [
        ("pointsman.calibration/1", "figures", "`object` of length >= 1 - at `$.figures`"),
        ("pointsman.calibration/1", "figures.ttft_ms", "length >= 1 - at `$.figures[...]`"),
        ("pointsman.policies-bench/1", "cells", "`array` of length >= 1 - at `$.cells`"),
        ("pointsman.policies-bench/1", "cells[0].policies", "at `$.cells[0].policies`"),
        ("pointsman.fleet-comparison/1", "results[0].metrics.statuses", "field `finished`"),
    ],
)
def test_a_part_that_is_empty_and_may_not_be_is_named(sound, schema, place, message):
    with pytest.raises(InputError) as error:
        result_of(changed(sound[schema], place, type(value_at(sound[schema], place))()), "x")
    assert message in str(error.value)


@pytest.mark.parametrize("schema", sorted(READERS))
def test_whatever_part_is_empty_there_is_a_page_or_one_clear_error(sound, schema):
    for place in places_of(sound[schema]):
        empty = type(value_at(sound[schema], place))()
        with suppress(InputError):
            page_of([result_of(changed(sound[schema], place, empty), "x")])


def test_a_field_of_a_wrong_type_is_named_with_its_place(compared):
    damaged = deepcopy(compared)
    damaged["results"][1]["metrics"]["p95_latency_ms"] = "soon"
    with pytest.raises(InputError, match=r"results\[1\]\.metrics\.p95_latency_ms"):
        result_of(damaged, "x")


def bench(loads_tried, held: float) -> dict:
    """A bench of one policy on one fleet."""
    at = {"goodput_fraction": 0.9, "p99_ttft_ms": 1.0, "p99_tpot_ms": 1.0}
    tried = [{**at, "load_ratio": load, "cached_token_fraction": 0.0} for load in loads_tried]
    policy = {"policy": "p", "whose": "ours", "load_ratio": held, "at": None, "tried": tried}
    cell = {"trace": "t", "fleet": "4", "requests": 9, "rate_rps": 1.0, "policies": [policy]}
    return {
        "schema": "pointsman.policies-bench/1",
        "model": "vllm-v1",
        "objectives": {"ttft_ms": 100.0},
        "attainment_fraction": 0.95,
        "tolerance_ratio": 1.05,
        "seed": 0,
        "simulations": 3,
        "simulated_hours": 1.0,
        "cells": [cell],
        "summary": None,
    }


def test_the_load_that_was_not_held_is_one_that_was_tried():
    """Of a policy that holds none, that is the lowest of them."""
    (run,) = result_of(bench([0.5, 0.25, 1.0], held=0.0), "x").runs
    assert (run.held.held, run.held.failed) == (0.0, 0.25)


@pytest.mark.parametrize("what", ["cells", "policies"])
def test_a_bench_of_nothing_is_refused(what):
    nothing = bench([1.0], held=1.0)
    (nothing if what == "cells" else nothing["cells"][0])[what] = []
    with pytest.raises(InputError, match=r"`array` of length >= 1 - at `\$\.cells"):
        result_of(nothing, "x")


def test_a_share_that_was_asked_for_keeps_its_digits():
    """99.95 % rounded to whole ones would be all requests."""
    result = result_of({**bench([1.0], held=1.0), "attainment_fraction": 0.9995}, "x")
    assert dict(result.basis)["Objectives"] == "TTFT 100 ms, in 99.95% of the requests"


def value_at(document: dict, place: str) -> object:
    at = document
    for key in re.findall(r"[^.\[\]]+", place):
        at = at[int(key)] if isinstance(at, list) else at[key]
    return at


def places_of(value: object, place: str = "") -> Iterator[str]:
    """Where lists and objects are in a document."""
    if isinstance(value, dict | list) and place:
        yield place
    if isinstance(value, dict):
        for key, each in value.items():
            yield from places_of(each, f"{place}.{key}" if place else key)
    if isinstance(value, list):
        for number, each in enumerate(value[:1]):
            yield from places_of(each, f"{place}[{number}]")
