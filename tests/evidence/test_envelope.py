"""The envelope: what it holds, what it refuses, and its published schema."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from pointsman import InputError
from pointsman.evidence.decoding import decode, read_envelope
from pointsman.evidence.envelope import (
    STAGE_NAMES,
    Goodput,
    Layout,
    Objectives,
    ServingGroup,
    StageMean,
    Statuses,
)
from pointsman.evidence.metrics import METRIC_NAMES
from pointsman.evidence.schema import schema_text
from tests.evidence.groups import FAST, TWO, group, three_groups, with_repeats
from tests.evidence.mechanisms import mechanism

ROOT = Path(__file__).resolve().parent.parent.parent

# Copied from the lesson on distributed inference, step 5.5.
LESSON_FIELDS = {
    "backend",
    "workload",
    "hardware",
    "metrics",
    "evidence_level",
    "failure",
    "decision",
}
LESSON_METRICS = {
    "ttft_ms",
    "tpot_ms",
    "e2e_ms",
    "throughput_tokens_per_s",
    "p95_ms",
    "p99_ms",
    "queue_wait_ms",
    "kv_handoff_bytes",
    "kv_handoff_ms",
    "peak_memory_mb",
    "success_rate",
}


def document(made) -> dict:
    return json.loads(msgspec.json.encode(made))


@pytest.mark.parametrize("made", [*three_groups(), mechanism()])
def test_a_file_reads_back_as_what_was_written(made):
    assert decode(document(made)) == made


def test_a_group_has_exactly_the_lessons_metrics_under_the_lessons_fields():
    written = document(three_groups()[0])
    assert set(written) >= LESSON_FIELDS
    assert set(written["metrics"]) == LESSON_METRICS == set(METRIC_NAMES)
    assert written["decision"] is None


def test_a_mechanism_run_has_the_lessons_fields():
    written = document(mechanism())
    assert set(written) >= LESSON_FIELDS - {"backend"} | {"project", "environment_profile"}
    assert set(written["metrics"]["rows"][0]) >= {
        "strategy",
        "request_cost_units_per_rank",
        "rank_elapsed_ms",
        "max_rank_makespan_ms",
        "throughput_requests_per_s_proxy",
    }


def test_every_file_says_what_its_percentiles_are_of_and_how_they_are_taken():
    definitions = document(three_groups()[0])["definitions"]
    assert (definitions["p95_of"], definitions["p99_of"]) == ("e2e_ms", "e2e_ms")
    assert definitions["percentile_method"] == "nearest_rank"
    assert definitions["origin"] == "intended arrival"


def test_every_metric_says_its_unit_its_definition_and_its_weighting():
    details = document(three_groups()[0])["details"]
    assert set(details) == LESSON_METRICS
    assert all(detail["unit"] and detail["definition"] for detail in details.values())
    assert "(E2E - TTFT) / (n - 1)" in details["tpot_ms"]["definition"]
    assert "weighs alike" in details["tpot_ms"]["definition"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "pointsman.evidence/9"}, "schema is 'pointsman.evidence/9'"),
        ({"evidence_level": "production"}, "evidence_level is 'production'"),
        ({"lable": "x"}, "lable in the top of the file is unknown; did you mean label?"),
        ({"decision": "accept"}, "decision is 'accept'"),
        ({"repeats": []}, "no repeat, and no failure that says why"),
    ],
)
def test_what_is_no_envelope_is_refused_with_the_place(tmp_path, change, message):
    file = tmp_path / "g.json"
    file.write_text(json.dumps({**document(three_groups()[0]), **change}))
    with pytest.raises(InputError) as caught:
        read_envelope(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert message in str(caught.value)


def test_a_null_without_a_reason_is_refused(tmp_path):
    made = document(three_groups()[0])
    made["metrics"]["queue_wait_ms"] = None
    file = tmp_path / "g.json"
    file.write_text(json.dumps(made))
    with pytest.raises(InputError, match=r"details.queue_wait_ms: a value has a source"):
        read_envelope(file)


def test_the_counts_of_all_statuses_add_up_to_what_was_offered():
    with pytest.raises(ValueError, match="add up to 9, offered is 10"):
        Statuses(offered=10, ok=7, error=1, rejected=1)


def test_goodput_is_over_all_that_was_offered():
    """30 % are refused: at most 70 % is met, whatever those that finished did."""
    assert Goodput(objectives=Objectives(), offered=10, met=7, fraction=0.7).fraction == 0.7
    with pytest.raises(ValueError, match="fraction is not met over offered"):
        Goodput(objectives=Objectives(), offered=10, met=7, fraction=1.0)


def test_a_split_names_both_its_sides():
    with pytest.raises(ValueError, match="needs prefills and decodes"):
        Layout(mode="pd_disaggregated", replicas=2, tp=1, pp=1, policy=None)


def test_failures_are_counted_in_every_file():
    fields = ServingGroup.__struct_fields__
    assert "statuses" in fields
    assert group("g1", TWO, FAST).statuses == Statuses(offered=300, ok=300)


def test_what_a_reader_must_know_and_where_the_time_went_read_back_as_they_were_written():
    stages = tuple(StageMean(name=name, mean_ms=1.5, count=3) for name in STAGE_NAMES)
    made = group("g1", TWO, FAST, stages=stages)
    made = with_repeats(made, warnings=("few: 9 requests ended well",))
    assert decode(document(made)) == made


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ({"name": "waiting", "mean_ms": 1.0, "count": 3}, "stages[0].name is 'waiting'"),
        ({"name": "prefill", "mean_ms": -1.0, "count": 3}, "stages[0].mean_ms is -1.0"),
        ({"name": "prefill", "mean_ms": None, "count": 3}, "stages[0].mean_ms is None"),
    ],
)
def test_a_stage_is_one_that_is_known_with_a_time(tmp_path, stage, message):
    file = tmp_path / "g.json"
    file.write_text(json.dumps({**document(three_groups()[0]), "stages": [stage]}))
    with pytest.raises(InputError) as caught:
        read_envelope(file)
    assert message in str(caught.value)


def test_the_published_schema_is_that_of_the_code():
    assert (ROOT / "docs" / "evidence.schema.json").read_text() == schema_text()
