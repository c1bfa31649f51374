"""A group that fails leaves a file that says so, and the others go on."""

from __future__ import annotations

import contextlib
import io
import json
import os

import pytest

from pointsman.bench.experiment import read_experiment
from pointsman.bench.run import Shown, bench_of, run
from pointsman.cli.main import main
from pointsman.evidence.metrics import METRIC_NAMES
from tests.bench.engines.answering import answering
from tests.bench.experiments import bench, group_in, one, rows_of, several, written

ROUTER = '[router]\nflags = ["--slack-ms", "20"]\n'  # which locality_aware takes, and others not
NAMES = ("g0", "g0_mute", "g0_errors", "g1a_several", "g1b_several")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """One that answers no first question, one whose answers are all errors, a policy refused."""
    at, err = tmp_path_factory.mktemp("failing"), io.StringIO()
    with (
        answering() as well,
        answering() as other,
        answering(first_status=500) as mute,
        answering(status=500) as broken,
        contextlib.redirect_stderr(err),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        groups = [
            one(well),
            one(mute, name="g0_mute"),
            one(broken, name="g0_errors"),
            several(well, other, policies=["queue_aware", "locality_aware"]),
        ]
        file = written(at, groups, head="repeats = 2", requests=6)
        file.write_text(file.read_text() + ROUTER)
        code = bench(file)
    return at / "results" / "run-1", code, err.getvalue()


def test_the_others_go_on_and_the_exit_code_is_1(ran):
    folder, code, err = ran
    assert code == 1
    assert group_in(folder, "g1b_several")["failure"] is None
    assert group_in(folder, "g1b_several")["statuses"]["ok"] == 12
    for name in ("g0_mute", "g1a_several"):
        assert f"{name}: failed at " in err


@pytest.mark.parametrize(
    ("name", "stage", "reason"),
    [
        ("g0_mute", "ready", "a first request was not answered"),
        ("g1a_several", "router", "--slack-ms is 20, and queue_aware does not take it"),
    ],
)
def test_its_file_has_the_stage_the_reason_and_how_to_try_again(ran, name, stage, reason):
    folder, _, _ = ran
    group = group_in(folder, name)
    assert group["failure"]["stage"] == stage
    assert reason in group["failure"]["reason"]
    assert "pointsman bench" in group["failure"]["retry"]
    assert f"--output {folder.parent} --label " in group["failure"]["retry"]
    assert str(folder / "logs") in group["failure"]["retry"]


@pytest.mark.parametrize("name", ["g0_mute", "g1a_several"])
def test_no_metric_of_it_is_told_and_each_says_why(ran, name):
    folder, _, _ = ran
    group = group_in(folder, name)
    for metric in METRIC_NAMES:
        assert group["metrics"][metric] is None
        assert group["details"][metric]["reason"].startswith(f"{group['failure']['stage']}: ")
    assert group["repeats"] == []


def test_all_files_are_sound_those_of_failed_groups_too(ran, capsys):
    folder, _, _ = ran
    files = [str(folder / f"{name}.json") for name in NAMES]
    assert main(["evidence", "check", *files]) == 0, capsys.readouterr().out


def test_errors_of_all_requests_are_a_measurement_with_no_latency_and_no_failure(ran):
    folder, _, _ = ran
    group = group_in(folder, "g0_errors")
    assert group["failure"] is None
    assert (group["statuses"]["error"], group["statuses"]["offered"]) == (12, 12)
    assert group["metrics"]["success_rate"] == 0.0
    for metric in ("ttft_ms", "e2e_ms", "p99_ms"):
        assert group["metrics"][metric] is None
        assert group["details"][metric]["reason"] == "no finished request has it"
    row = rows_of(folder, group["repeats"][0])[0]
    assert (row["status"], row["http_status"]) == ("error", 500)


def test_a_failed_candidate_is_rejected_and_none_of_its_figures_is_compared(ran, capsys, tmp_path):
    """Against a baseline in which the client was no bottleneck."""
    folder, _, _ = ran
    baseline = group_in(folder, "g0")
    for repeat in baseline["repeats"]:
        repeat["invalid"] = None
    for name, document in (("g0", baseline), ("g1a", group_in(folder, "g1a_several"))):
        for repeat in document["repeats"]:
            repeat["rows"] = None
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    assert main(["decide", str(tmp_path), "--format", "json"]) == 0
    (decided,) = json.loads(capsys.readouterr().out)["groups"]
    assert decided["decision"] == "reject"
    assert decided["reason"].startswith("failed at stage router: ")
    assert decided["metrics"] == []


def test_its_file_is_there_before_the_next_group_begins(tmp_path):
    there: dict[str, set[str]] = {}

    def say(sentence: str) -> None:
        there[sentence] = {path.name for path in (tmp_path / "results").glob("*.json")}

    with answering(first_status=500) as mute, answering() as well:
        groups = [one(mute, name="g0_mute"), one(well, name="g1")]
        file = written(tmp_path, groups, head="repeats = 3", requests=6)
        shared = bench_of(read_experiment(file), file, tmp_path / "results", dict(os.environ))
        outcome = run(shared, Shown(say))
    assert there["g1: starting one replica"] == {"g0_mute.json"}
    assert [path.name for path in outcome.files] == ["g0_mute.json", "g1.json"]
    assert list(outcome.failures) == ["g0_mute"]
    assert not outcome.is_interrupted


def test_a_group_that_cannot_be_written_costs_no_other_group_anything(tmp_path, capsys):
    # The router is told to log elsewhere, so that what it saw cannot be joined.
    elsewhere = f'[router]\nflags = ["--decision-log", {json.dumps(str(tmp_path / "log"))}]\n'
    with answering() as well, answering() as other:
        groups = [several(well, other, policies=["queue_aware"]), one(well)]
        file = written(tmp_path, groups, head='repeats = 1\norder = "abba"', requests=6)
        file.write_text(file.read_text() + elsewhere)
        code = bench(file)
    assert code != 0
    folder = tmp_path / "results" / "run-1"
    assert group_in(folder, "g0")["failure"] is None
    said = capsys.readouterr().err
    assert "g1_several: was measured and cannot be written: " in said
    assert "Traceback" not in said
