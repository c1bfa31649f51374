"""torchrun as it is started; a shell script stands in for it here."""

from __future__ import annotations

from pathlib import Path

import pytest

from pointsman.bench.mechanism.asked import MechanismAsked
from pointsman.bench.mechanism.launch import Launch, Machine
from pointsman.bench.mechanism.result import write_new
from pointsman.core.errors import MachineError
from tests.bench.mechanism import made

COMPLETE = Machine(torch_fault=None, gpus=2, torchrun="/usr/bin/torchrun")


@pytest.fixture
def launch(tmp_path):
    return Launch(MechanismAsked(output=tmp_path / "result.json"))


@pytest.fixture
def stand_in(tmp_path):
    """A program in place of torchrun that runs a script."""

    def made_of(script):
        path = tmp_path / "stand_in_for_torchrun"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return str(path)

    return made_of


def test_on_a_machine_with_two_gpus_nothing_is_missing(launch):
    assert launch.missing(COMPLETE) == ()


def test_everything_that_is_missing_is_listed_at_once_with_its_fix(launch):
    launch.asked.output.write_text("mine")
    missing = launch.missing(Machine(torch_fault="No module named 'torch'", gpus=0, torchrun=None))
    assert [one.what.split(" ")[0].rstrip(",") for one in missing] == [
        "torch",
        "torchrun",
        "2",
        "a",
    ]
    assert "torch sees 0" in missing[2].what
    assert [one.fix for one in missing] == [
        "pip install 'pointsman[torch]'",
        "pip install 'pointsman[torch]'",
        "run it on a machine that has them, with a torch built for them, or on the CPU with --cpu",
        "another --run-label or --output",
    ]


def test_one_gpu_is_not_enough_for_two_ranks(launch):
    (missing,) = launch.missing(Machine(torch_fault=None, gpus=1, torchrun="torchrun"))
    assert missing.what == "2 GPUs, one for each rank; torch sees 1"


def test_the_cpu_form_needs_no_gpu(tmp_path):
    launch = Launch(MechanismAsked(output=tmp_path / "result.json"), on_gpus=False)
    assert launch.missing(Machine(torch_fault=None, gpus=0, torchrun="torchrun")) == ()
    assert launch.shown().startswith("CUDA_VISIBLE_DEVICES= torchrun --standalone")


def test_the_command_is_the_lessons():
    launch = Launch(MechanismAsked(output=Path("result.json")))
    assert launch.shown() == (
        "torchrun --standalone --nproc_per_node 2 -m pointsman.bench.mechanism"
        " --mode replica_routing --compute-dim 768 --dtype bfloat16 --warmup 2 --repeats 5"
        " --run-label default --workload-id par-replica-load-routing --timeout-s 300"
        " --output result.json"
    )


def test_what_rank_0_says_is_passed_on_and_what_torchrun_says_is_not(launch, stand_in):
    write_new(launch.asked.output, made.result())
    said = []
    script = "echo W: an asterisk >&2; echo pointsman: half way >&2; echo on stdout"
    assert launch.run(stand_in(script), said.append) == made.result()
    assert said == ["half way"]


def test_a_failed_run_points_to_the_file_that_says_why(launch, stand_in):
    launch.asked.output.write_text("{}")
    with pytest.raises(MachineError, match=r"the run failed; .*result\.json says why"):
        launch.run(stand_in("echo pointsman: failed >&2; exit 1"), [].append)


def test_where_nothing_was_written_the_last_lines_of_torchrun_are_the_reason(launch, stand_in):
    script = "for i in 1 2 3 4 5 6; do echo line $i >&2; done; exit 3"
    with pytest.raises(MachineError) as failed:
        launch.run(stand_in(script), [].append)
    assert str(failed.value).splitlines() == [
        "mechanism: torchrun ended with 3 and there is no result; its last lines:",
        *(f"  line {number}" for number in range(2, 7)),
    ]


def test_a_torchrun_that_cannot_be_started_is_one_clear_error(launch, tmp_path):
    with pytest.raises(MachineError, match=r"cannot start .*absent: No such file"):
        launch.run(str(tmp_path / "absent"), [].append)
