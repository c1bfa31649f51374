"""A group's own program: it has to leave sound evidence, and ends with us."""

from __future__ import annotations

import json
import os
import shutil
import sys

import pytest

from pointsman.bench.experiment import Group, GroupRun
from pointsman.bench.groups import GroupError
from pointsman.bench.own_command import run_command
from tests.evidence.test_checking import LESSON_GROUP
from tests.interrupts import interruptible

WRITES = "import os, sys; open(os.environ['POINTSMAN_RESULT'], 'w').write({text!r})"
FAILED = {
    **LESSON_GROUP,
    "failure": {"stage": "load", "reason": "out of memory", "retry": "a smaller model"},
}


@pytest.fixture
def ran(tmp_path):
    """Runs a program as the group ``own``."""

    def run(*words):
        folder = tmp_path / "run-1"
        folder.mkdir()
        group = Group(name="own", replicas=1, command=words)
        return run_command(GroupRun("own", group, None), folder, folder / "logs")

    return run


def python(code: str) -> tuple[str, ...]:
    return sys.executable, "-c", code


def writes(text: str, then: str = "") -> tuple[str, ...]:
    return python(f"{WRITES.format(text=text)}\n{then}")


def failure_of(ran, *words) -> GroupError:
    with pytest.raises(GroupError) as raised:
        ran(*words)
    assert raised.value.stage == "command"
    return raised.value


def test_what_it_writes_where_the_variable_says_is_the_result(ran, tmp_path):
    assert ran(*writes(json.dumps(LESSON_GROUP))) == tmp_path / "run-1" / "own.json"
    assert json.loads((tmp_path / "run-1" / "own.json").read_text()) == LESSON_GROUP


def test_it_may_be_told_in_its_words(ran, tmp_path):
    source = tmp_path / "made.json"
    source.write_text(json.dumps(LESSON_GROUP))
    ran(shutil.which("cp"), str(source), "{result}")
    assert (tmp_path / "run-1" / "own.json").read_bytes() == source.read_bytes()


def test_a_program_that_writes_nothing_has_failed(ran, tmp_path):
    error = failure_of(ran, *python("pass"))
    assert f"ended well and wrote no {tmp_path / 'run-1' / 'own.json'}" in str(error)


def test_a_program_that_fails_is_told_with_its_code_and_its_last_lines(ran):
    error = failure_of(ran, *python("print('no room for the weights'); raise SystemExit(3)"))
    assert "ended with 3; its last lines:" in str(error)
    assert "no room for the weights" in str(error)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "wrote no sound evidence: "),
        (json.dumps({**LESSON_GROUP, "metrics": {}}), "ttft_ms is missing; looked for at metrics"),
    ],
)
def test_a_file_that_is_not_sound_is_a_failure_and_lies_no_longer_among_results(
    ran, tmp_path, text, reason
):
    assert reason in str(failure_of(ran, *writes(text)))
    assert list((tmp_path / "run-1").glob("*.json")) == []
    assert (tmp_path / "run-1" / "logs" / "own.left.json").read_text() == text


def test_a_result_of_a_program_that_fails_after_it_is_none(ran, tmp_path):
    error = failure_of(ran, *writes(json.dumps(LESSON_GROUP), "sys.exit(1)"))
    assert "ended with 1" in str(error)
    assert "own.left.json" in str(error)
    assert not (tmp_path / "run-1" / "own.json").exists()


@pytest.mark.parametrize("code", [0, 1])
def test_a_file_that_states_a_failure_stays_and_the_group_has_failed(ran, tmp_path, code):
    error = failure_of(ran, *writes(json.dumps(FAILED), f"sys.exit({code})"))
    assert "says that it failed at load: out of memory" in str(error)
    assert json.loads((tmp_path / "run-1" / "own.json").read_text()) == FAILED


def test_told_to_end_before_it_is_known_to_have_begun_it_leaves_no_result(
    ran, tmp_path, monkeypatch
):
    """On a busy machine a program writes before its supervisor can say that it runs."""
    slow = tmp_path / "python"
    slow.write_text(f'#!/bin/sh\n"{sys.executable}" "$@" | {{ sleep 5; cat; }}\n')
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))
    with interruptible(), pytest.raises(KeyboardInterrupt):
        ran("sh", "-c", f"echo {{}} > $POINTSMAN_RESULT; kill -INT {os.getpid()}; sleep 3600")
    assert list((tmp_path / "run-1").glob("*.json")) == []
    assert (tmp_path / "run-1" / "logs" / "own.left.json").read_text() == "{}\n"


def test_a_program_that_is_not_there_is_a_failure(ran):
    assert "cannot be started" in str(failure_of(ran, "/no/such/program"))
