"""evidence check, evidence schema and decide on a folder, as a user calls them."""

from __future__ import annotations

import json

import msgspec
import pytest

from pointsman.cli.main import main
from pointsman.evidence.decision_file import DecisionDocument
from pointsman.evidence.envelope import Failure
from pointsman.evidence.measured import no_figures
from tests.evidence.groups import SLOW, TWO, group, three_groups, with_repeats, written
from tests.evidence.mechanisms import mechanism
from tests.evidence.test_checking import LESSON_GROUP

BASE, REPLICAS, APART = three_groups()


def run(capsys, *words) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def results(tmp_path):
    written(tmp_path / "results" / "run-1", *three_groups())
    return tmp_path / "results"


def test_a_folder_of_three_repeats_ends_in_a_decision_for_each_group(capsys, results):
    code, out, _ = run(capsys, "decide", results, "--format", "json")
    document = json.loads(out)
    assert code == 0
    assert document["schema"] == "pointsman.measured-decision/1"
    decided = {each["group"]: each["decision"] for each in document["groups"]}
    assert decided == {"g1_multi_replica": "accept", "g2_pd_disaggregated": "accept"}
    first = document["groups"][0]
    assert first["baseline"] == "g0_single_replica"
    assert first["varies"] == ["replicas"]
    assert first["next_action"] == "promote_to_real_cluster_check"
    # Arrivals of an open load set the rate: more of it would say nothing of the replicas.
    assert not any("times the throughput" in remark for remark in first["remarks"])


def test_the_decision_lies_beside_the_evidence_which_stays_as_it_was(capsys, results):
    folder = results / "run-1"
    before = {file.name: file.read_bytes() for file in folder.glob("*.json")}
    _, out, err = run(capsys, "decide", results, "--format", "json")
    assert (folder / "decision.json").read_text() == out
    assert f"decided in {folder / 'decision.json'}" in err
    assert {name: (folder / name).read_bytes() for name in before} == before
    msgspec.json.decode(out, type=DecisionDocument)


def test_the_same_decision_again_writes_nothing_and_another_one_a_file_of_its_own(capsys, results):
    for level in ("0.95", "0.95", "0.9"):
        run(capsys, "decide", results, "--level", level)
    names = sorted(file.name for file in (results / "run-1").glob("decision*"))
    assert names == ["decision-2.json", "decision.json"]


def test_the_table_has_metrics_checks_and_the_next_action(capsys, results):
    _, out, _ = run(capsys, "decide", results)
    assert "g1_multi_replica against g0_single_replica (real_engine_cpu): under test rep" in out
    assert "accept: e2e_ms 510 against 1,020" in out
    assert "next: promote_to_real_cluster_check" in out
    assert "real engines on CPUs: the order of the groups, not what GPUs would take" in out
    assert max(map(len, out.splitlines())) <= 100


def test_csv_has_a_line_a_group_and_metric(capsys, results):
    _, out, _ = run(capsys, "decide", results, "--format", "csv")
    assert len(out.splitlines()) == 1 + 2 * 12


def test_a_failed_group_is_rejected_with_how_to_retry_and_never_compared(capsys, tmp_path):
    failure = Failure(stage="start", reason="port 8001 is taken", retry="free it, run again")
    nothing = no_figures("the group failed at stage start")
    failed = group(
        "g1",
        TWO,
        dict.fromkeys(SLOW, (None,)),
        failure=failure,
        metrics=nothing.metrics,
        details=nothing.details,
        repeats=(),
        statuses=None,
    )
    written(tmp_path, BASE, failed)
    _, out, _ = run(capsys, "decide", tmp_path, "--format", "json")
    (decided,) = json.loads(out)["groups"]
    assert decided["decision"] == "reject"
    assert decided["reason"].startswith("failed at stage start: port 8001 is taken")
    assert decided["next_steps"] == ["free it, run again"]
    assert decided["metrics"] == []


def test_a_group_whose_client_was_the_bottleneck_is_no_result(capsys, tmp_path):
    written(tmp_path, BASE, with_repeats(REPLICAS, invalid="the client was late by 900 ms"))
    _, out, _ = run(capsys, "decide", tmp_path)
    assert "reject: failed at stage client: repeat 1 is invalid: the client was late" in out


def test_a_baseline_that_failed_is_nothing_to_compare_with(capsys, tmp_path):
    written(tmp_path, with_repeats(BASE, invalid="late"), REPLICAS)
    code, out, err = run(capsys, "decide", tmp_path)
    assert (code, out) == (2, "")
    assert "the baseline failed at stage client" in err


def test_groups_that_may_not_be_compared_stop_it_and_nothing_is_written(capsys, tmp_path):
    workload = msgspec.structs.replace(BASE.workload, concurrency=16)
    written(tmp_path, BASE, msgspec.structs.replace(REPLICAS, workload=workload))
    code, out, err = run(capsys, "decide", tmp_path)
    assert (code, out) == (2, "")
    assert "concurrency: 8 against 16; a change of load is load sensitivity" in err
    assert not (tmp_path / "decision.json").exists()


def test_candidates_and_baseline_may_be_named(capsys, results):
    words = ("--baseline", "g1_multi_replica", "--candidate", "g2_pd_disaggregated")
    _, out, _ = run(capsys, "decide", results, *words, "--format", "json")
    (decided,) = json.loads(out)["groups"]
    assert (decided["baseline"], decided["varies"]) == ("g1_multi_replica", ["mode"])


def test_a_rejection_fails_the_gate(capsys, tmp_path):
    written(tmp_path, BASE, group("g1", TWO, SLOW))
    assert run(capsys, "decide", tmp_path)[0] == 0
    assert run(capsys, "decide", tmp_path, "--gate")[0] == 3


def test_a_mechanism_run_is_decided_by_its_file(capsys, tmp_path):
    written(tmp_path, mechanism())
    code, out, _ = run(capsys, "decide", tmp_path / "mechanism.json")
    assert code == 0
    assert "next: run_serving_experiment" in out
    assert (tmp_path / "mechanism.decision.json").exists()


def test_files_of_the_lesson_are_decided_but_never_accepted(capsys, tmp_path):
    for name, replicas, e2e_ms in (("g0", 1, 1000.0), ("g1", 2, 400.0)):
        metrics = {**LESSON_GROUP["metrics"], "e2e_ms": e2e_ms}
        document = {**LESSON_GROUP, "metrics": metrics, "replicas": replicas}
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    _, out, _ = run(capsys, "decide", tmp_path)
    assert "tune: " in out
    assert "neither file states model_revision (looked for in backend.model.revision" in " ".join(
        out.split()
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("{results}", "--label", "run-2"), "label 'run-2' is unknown"),
        (("{results}", "--baseline", "g9"), "--baseline 'g9' is unknown"),
        (("{results}", "--candidate", "g9"), "--candidate 'g9' is unknown"),
        (("{results}", "--vary", "polcy"), "did you mean policy?"),
        (("{results}", "--level", "95"), "level is 95.0"),
        (("{results}", "--max-memory-mb", "nan"), "--max-memory-mb is nan"),
        (("{results}/none",), "no such file"),
        (("{results}/run-1/g0_single_replica.json",), "found g0_single_replica.json"),
        (("a.json", "b.json", "--label", "x"), "--label is of measured groups"),
    ],
)
def test_what_is_wrong_with_a_decision_is_said_in_one_line(capsys, results, words, message):
    code, out, err = run(capsys, "decide", *(word.format(results=results) for word in words))
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_check_says_what_is_missing_and_where_it_looked(capsys, tmp_path, results):
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps({k: v for k, v in LESSON_GROUP.items() if k != "backend"}))
    good = results / "run-1" / "g0_single_replica.json"
    code, out, _ = run(capsys, "evidence", "check", good, bad)
    assert code == 2
    assert f"{bad}: backend is missing; looked for at the top of the file" in out
    assert run(capsys, "evidence", "check", good)[0] == 0


def test_check_as_json_has_every_problem_of_every_file(capsys, tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    code, out, _ = run(capsys, "evidence", "check", bad, "--format", "json")
    (file,) = json.loads(out)["files"]
    assert (code, file["is_sound"], len(file["problems"])) == (2, False, 7)


def test_the_schema_is_printed_as_json(capsys):
    code, out, _ = run(capsys, "evidence", "schema")
    assert code == 0
    assert json.loads(out)["$defs"]["ServingGroup"]["properties"]["kind"]
