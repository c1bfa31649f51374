"""``pointsman mechanism`` on machines that have what it needs, or not."""

from __future__ import annotations

from argparse import Namespace

import pytest

from pointsman.bench.mechanism.asked import MechanismAsked
from pointsman.bench.mechanism.launch import Launch, Machine
from pointsman.cli.main import build_parser
from pointsman.cli.mechanism import carry_out
from pointsman.core.errors import MachineError
from tests.bench.mechanism import made

ONE_GPU = Machine(torch_fault=None, gpus=1, torchrun="/no/torchrun")
NO_TORCH = Machine(torch_fault="No module named 'torch'", gpus=0, torchrun=None)


def how(dry_run=False, gpu=False, cpu=False):
    return Namespace(dry_run=dry_run, gpu=gpu, cpu=cpu)


@pytest.fixture
def launch(tmp_path):
    return Launch(MechanismAsked(output=tmp_path / "result.json"))


def test_without_two_gpus_it_says_what_would_run_and_writes_nothing(launch, tmp_path, capsys):
    assert carry_out(launch, ONE_GPU, how()) == 0
    said = capsys.readouterr().out
    assert said.startswith("dry run: nothing was measured, nothing was written\n")
    assert "2 GPUs, one for each rank; torch sees 1" in said
    assert "torchrun --standalone --nproc_per_node 2 -m pointsman.bench.mechanism --mode" in said
    assert list(tmp_path.iterdir()) == []


def test_gpus_that_are_asked_for_and_missing_are_an_error(launch, capsys):
    with pytest.raises(MachineError, match="nothing was run; what is missing:\n  2 GPUs"):
        carry_out(launch, ONE_GPU, how(gpu=True))


def test_the_cpu_form_without_torch_lists_what_to_install(tmp_path):
    launch = Launch(MechanismAsked(output=tmp_path / "result.json"), on_gpus=False)
    with pytest.raises(MachineError) as missing:
        carry_out(launch, NO_TORCH, how(cpu=True))
    assert str(missing.value).count("-> pip install 'pointsman[torch]'") == 1


def test_a_dry_run_on_a_complete_machine_says_that_nothing_is_missing(launch, capsys):
    complete = Machine(torch_fault=None, gpus=2, torchrun="/no/torchrun")
    assert carry_out(launch, complete, how(dry_run=True)) == 0
    assert "nothing is missing\nit would run:\n  torchrun " in capsys.readouterr().out


def test_gpus_and_the_cpu_exclude_each_other(capsys):
    with pytest.raises(SystemExit):
        build_parser().parse_args(["mechanism", "--gpu", "--cpu"])
    assert "not allowed with argument --gpu" in capsys.readouterr().err


def test_the_table_has_units_times_and_the_spread_over_the_repeats(tmp_path, capsys):
    from pointsman.report.mechanism import mechanism_table

    lines = mechanism_table(made.result()).splitlines()
    times = "7.00 28.00 26.00 28.00 30.00 285.7"
    assert lines[2].split() == ["round_robin", "6", "26", *times.split()]
    times = "16.50 17.50 17.00 18.50 20.00 457.1"
    assert lines[3].split() == ["least_loaded", "17", "15", *times.split()]
    assert "2 ranks on the CPU (gloo), 2 repeats; a unit is one product" in lines[4]
