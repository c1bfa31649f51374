"""The flags of a mechanism run."""

from __future__ import annotations

from pathlib import Path

import pytest

from pointsman.bench.mechanism.asked import MechanismAsked, asked_by, check_is_new
from pointsman.core.errors import InputError

# The lesson's command, step 5.2, after the name of the module.
LESSON = (
    "--mode replica_routing --compute-dim 768 --dtype bfloat16 --warmup 2 --repeats 5"
    " --run-label default --workload-id par-replica-load-routing --output result.json"
)


def test_the_lessons_flags_ask_for_the_defaults():
    assert asked_by(LESSON.split()) == MechanismAsked(output=Path("result.json"))


def test_the_words_of_a_run_ask_for_that_run():
    asked = MechanismAsked(
        output=Path("a b.json"), compute_dim=32, dtype="float32", warmup=0, timeout_s=7.5
    )
    assert asked_by(asked.words()) == asked


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--mode tp_mlp", "mode 'tp_mlp' is unknown; expected one of replica_routing"),
        ("--dtype bfloat", "did you mean bfloat16?"),
        ("--compute-dim 0", "--compute-dim is 0; expected an integer in 1..65536"),
        ("--warmup -1", "--warmup is -1; expected an integer in 0..100000"),
        ("--repeats 0", "--repeats is 0; expected an integer in 1..100000"),
        ("--repeats many", "argument --repeats: invalid int value: 'many'"),
        ("--run-label a/b", "--run-label is 'a/b'; expected letters, digits"),
        ("--workload-id=", "--workload-id is ''; expected a name"),
        ("--timeout-s 0", "--timeout-s is 0.0; expected a number > 0"),
        ("--repaets 5", "flag '--repaets' is unknown"),
        ("--repaets 5", "did you mean --repeats?"),
    ],
)
def test_what_no_run_can_have_is_refused(words, said):
    with pytest.raises(InputError) as refused:
        asked_by(["--output", "result.json", *words.split()])
    assert said in str(refused.value)


def test_a_run_without_a_file_for_its_result_is_refused():
    with pytest.raises(InputError, match="--output is missing; expected a file"):
        asked_by([])


def test_what_is_there_is_not_written_over(tmp_path):
    there = tmp_path / "there.json"
    there.write_text("mine")
    with pytest.raises(InputError, match=r"never overwritten; expected a new name"):
        check_is_new(there)
    check_is_new(tmp_path / "new.json")
