"""The figures of an estimate's JSON, and the refusal of whatever is no such file."""

from __future__ import annotations

import json

import pytest

from pointsman.core.errors import InputError
from pointsman.verdict.figures import read_figures, same_workload


@pytest.fixture
def file(tmp_path):
    return tmp_path / "e.json"


def test_a_bare_summary_with_the_lessons_keys_is_taken(file):
    file.write_text('{"makespan_ms": 3, "queue_wait_total_ms": "whatever", "tp_degree": [1]}')
    figures = read_figures(file)
    assert figures.required("makespan_ms") == 3.0
    assert (figures.requests, figures.summary.comm_cost_ms) == (None, None)


def test_an_estimate_names_its_requests_and_its_shape(file):
    file.write_text(
        '{"schema": "pointsman.estimate/1", "summary": {},'
        ' "workload": {"sha256": "ab", "requests": 7, "source": "t"},'
        ' "fleet": {"replicas": 2, "costs": {"tp_degree": 4, "serving_mode": "replica"}}}'
    )
    figures = read_figures(file)
    assert (figures.workload_sha256, figures.requests, figures.replicas) == ("ab", 7, 2)
    assert figures.shape.tp_degree == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"summary": {}, "workload": 3}', "workload is 3; expected an object"),
        ('{"summary": {}, "fleet": {"costs": []}}', r"fleet.costs is []; expected an object"),
        ('{"summary": [1]}', "summary is [1]; expected an object"),
        ('{"schema": "pointsman.estimate/1"}', "summary is missing; expected an object"),
        ('{"schema": "pointsman.compare/1"}', "schema is 'pointsman.compare/1'; expected"),
        ('{"schema": 3, "summary": {}}', "schema is 3; expected pointsman.estimate/1"),
        ('{"makespan_ms": "1"}', "makespan_ms is '1'; expected a number >= 0"),
        ('{"makespan_ms": true}', "makespan_ms is True; expected a number >= 0"),
        ('{"makespan_ms": -1}', "makespan_ms is -1; expected a number >= 0"),
        ('{"makespan_ms": NaN}', "not JSON"),
        ('{"makespan_ms": 1e400}', "not JSON"),
        ('{"makespan_ms": 1%s}' % ("0" * 400), "expected a number >= 0"),
        ("[1]", "expected the JSON object that"),
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_whatever_is_no_estimate_is_one_input_error(file, text, message):
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        read_figures(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert message in str(caught.value)


def test_a_figure_that_is_missing_is_named(file):
    file.write_text("{}")
    with pytest.raises(InputError, match=r"e.json summary: makespan_ms is missing"):
        read_figures(file).required("makespan_ms")


def test_two_different_workloads_are_not_compared(tmp_path):
    files = []
    for count in (3, 4):
        files.append(tmp_path / f"{count}.json")
        files[-1].write_text(json.dumps({"summary": {}, "workload": {"requests": count}}))
    with pytest.raises(InputError, match=r"requests is 4, 3\.json has 3"):
        same_workload(*map(read_figures, files))
