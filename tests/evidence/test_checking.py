"""What files lack: ours, the lessons', older ones; every field missing in turn."""

from __future__ import annotations

import json

import msgspec
import pytest

from pointsman import InputError
from pointsman.evidence.checking import MECHANISM, SERVING, check_file
from pointsman.evidence.folder import write_envelope, write_rows
from pointsman.evidence.metrics import METRIC_NAMES
from tests.evidence.groups import three_groups, with_repeats
from tests.evidence.mechanisms import mechanism

# As a script of the lesson would write them, with nothing of ours.
LESSON_GROUP = {
    "backend": "vllm",
    "workload": {"prompt_tokens": 512, "max_tokens": 64, "concurrency": 1},
    "hardware": "2 x A100",
    "metrics": dict.fromkeys(METRIC_NAMES, 1.0),
    "evidence_level": "real_engine_gpu",
    "failure": None,
    "decision": None,
}
ROW = {
    "strategy": "round_robin",
    "request_cost_units_per_rank": [6, 26],
    "rank_elapsed_ms": [5.0, 20.0],
    "max_rank_makespan_ms": 20.0,
    "throughput_requests_per_s_proxy": 400.0,
}
LESSON_MECHANISM = {
    "workload": "par-replica-load-routing",
    "hardware": "2 x A100",
    "metrics": {"rows": [ROW, {**ROW, "strategy": "least_loaded"}]},
    "evidence_level": "mechanism_gpu",
    "failure": None,
    "decision": None,
}
RANK_ROW = {"strategy": "round_robin", "rank": 0, "request_cost_units": 6, "elapsed_ms": 5.0}
OURS = json.loads(msgspec.json.encode(three_groups()[0]))
OUR_MECHANISM = json.loads(msgspec.json.encode(mechanism()))


@pytest.fixture
def check(tmp_path):
    def check(document):
        file = tmp_path / "r.json"
        file.write_text(document if isinstance(document, str) else json.dumps(document))
        return check_file(file)

    return check


def without(document: dict, *path) -> dict:
    copy = json.loads(json.dumps(document))
    part = copy
    for key in path[:-1]:
        part = part[key]
    del part[path[-1]]
    return copy


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        (LESSON_GROUP, SERVING),
        (LESSON_MECHANISM, MECHANISM),
        (OURS, SERVING),
        (OUR_MECHANISM, MECHANISM),
        ({**LESSON_GROUP, "failure": "CUDA out of memory", "decision": "tune"}, SERVING),
        ({**LESSON_GROUP, "failure": {"reason": "x"}, "decision": {"decision": "tune"}}, SERVING),
        ({**LESSON_GROUP, "metrics": dict.fromkeys(METRIC_NAMES)}, SERVING),
        ({**LESSON_MECHANISM, "metrics": {"rows": [RANK_ROW]}}, MECHANISM),
        ({**LESSON_MECHANISM, "metrics": {"rows": []}, "failure": "one GPU only"}, MECHANISM),
    ],
)
def test_a_sound_file_of_any_age_has_no_problem(check, document, kind):
    report = check(document)
    assert report.problems == ()
    assert report.kind == kind


@pytest.mark.parametrize(
    ("document", "field"),
    [(LESSON_GROUP, field) for field in LESSON_GROUP]
    + [(LESSON_MECHANISM, field) for field in LESSON_MECHANISM if field != "metrics"]
    + [(OURS, field) for field in OURS if field not in ("schema", "kind")]
    + [(OUR_MECHANISM, field) for field in OUR_MECHANISM if field not in ("schema", "kind")],
)
def test_each_missing_field_is_named_with_where_it_was_looked_for(check, document, field):
    (problem,) = check(without(document, field)).problems
    assert problem.field == field
    assert problem.text.startswith(f"{field} is missing; looked for at the top of the file")


@pytest.mark.parametrize("name", METRIC_NAMES)
@pytest.mark.parametrize("document", [LESSON_GROUP, OURS], ids=["lesson's", "ours"])
def test_each_missing_metric_is_named(check, document, name):
    (problem,) = check(without(document, "metrics", name)).problems
    assert (problem.field, problem.place) == (name, "metrics")


@pytest.mark.parametrize("field", ROW)
def test_each_missing_field_of_a_row_is_named(check, field):
    (problem,) = check(without(LESSON_MECHANISM, "metrics", "rows", 1, field)).problems
    assert problem.field == field
    assert f"{field} is missing; looked for in metrics.rows[1]" in problem.text


@pytest.mark.parametrize("part", ["backend", "workload", "layout", "hardware", "definitions"])
def test_a_missing_field_of_a_part_of_ours_is_named_with_its_place(check, part):
    field = next(iter(OURS[part]))
    (problem,) = check(without(OURS, part, field)).problems
    assert problem.text == f"{field} is missing; looked for in {part}"


def test_all_that_is_missing_is_named_at_once(check):
    fields = [problem.field for problem in check({"metrics": {}}).problems]
    assert fields == [
        "backend",
        "workload",
        "hardware",
        "evidence_level",
        "failure",
        "decision",
        *METRIC_NAMES,
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"backend": ""}, "backend is ''; expected a string or an object"),
        ({"hardware": None}, "hardware is None; expected a string or an object"),
        ({"evidence_level": 3}, "evidence_level is 3; expected a string"),
        ({"failure": 1}, "failure is 1; expected null, a string or an object"),
        ({"metrics": [1]}, "metrics is [1]; expected an object"),
        ({"schema": "pointsman.estimate/1"}, "expected pointsman.evidence/1"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named(check, change, message):
    texts = [problem.text for problem in check({**LESSON_GROUP, **change}).problems]
    assert any(message in text for text in texts), texts


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("ttft_ms", "12", "metrics.ttft_ms is '12'; expected a number >= 0, or null"),
        ("ttft_ms", -1, "metrics.ttft_ms is -1; expected a number >= 0, or null"),
        ("e2e_ms", True, "metrics.e2e_ms is True; expected a number >= 0, or null"),
        ("success_rate", 99.5, "metrics.success_rate is 99.5; expected a number in 0..1"),
        ("p99_ms", 0.5, "metrics.p99_ms is 0.5; expected at least p95_ms, which is 1.0"),
    ],
)
def test_a_metric_that_cannot_be_is_named(check, name, value, message):
    metrics = {**LESSON_GROUP["metrics"], name: value}
    (problem,) = check({**LESSON_GROUP, "metrics": metrics}).problems
    assert problem.text == message


@pytest.mark.parametrize("text", ["", "[1]", "{", "[" * 100_000, '{"a": NaN}'])
def test_what_is_no_json_object_is_a_problem_and_no_error(check, text):
    (problem,) = check(text).problems
    assert problem.field == "JSON"


def test_older_forms_are_remarked_on(check):
    remarks = check({**LESSON_GROUP, "failure": "oom", "decision": "reject"}).remarks
    assert [remark.split(":")[0] for remark in remarks[:2]] == [
        "failure is a string",
        "decision is a string",
    ]


def test_a_percentile_of_an_unnamed_quantity_is_remarked_on(check):
    assert any("what p95_ms is of" in remark for remark in check(LESSON_GROUP).remarks)
    assert not any("what p95_ms is of" in remark for remark in check(OURS).remarks)


def test_rows_that_were_changed_or_lost_are_named(tmp_path):
    rows = write_rows(tmp_path, "g0-1", [{"number": 0}, {"number": 1}])
    path = write_envelope(tmp_path, with_repeats(three_groups()[0], rows=rows))
    assert check_file(path).is_sound
    side = tmp_path / rows.file
    side.write_text('{"number": 0}\n')
    assert "was changed" in check_file(path).problems[0].text
    side.unlink()
    assert "is not there" in check_file(path).problems[0].text


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        check_file(tmp_path / "none.json")
