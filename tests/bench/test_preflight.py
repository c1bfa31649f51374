"""What an experiment needs and a machine has not."""

from __future__ import annotations

import socket
from dataclasses import replace

import msgspec
import pytest

from pointsman.bench.experiment import read_experiment
from pointsman.bench.missing import Missing, listed
from pointsman.bench.preflight import Host, Plans, missing_for

EXPERIMENT = """
name = "small"
[model]
id = "tiny"
[engine]
name = "vllm"
[hardware]
device = "gpu"
cores_per_rank = 2
memory_mb = 32000
[workload]
id = "few"
trace = "trace.jsonl"
[[groups]]
name = "g0"
replicas = 1
command = ["torchrun", "mine.py"]
[[groups]]
name = "g1"
replicas = 2
policies = ["mine.py:cheapest"]
"""

HAS_ALL = Host(
    gpus=2, cores=8, memory_mb=64000.0, found=lambda name: f"/bin/{name}", is_free=lambda port: True
)
HAS_NOTHING = Host(
    gpus=1, cores=3, memory_mb=16000.0, found=lambda name: None, is_free=lambda port: False
)


@pytest.fixture
def plans(tmp_path):
    file = tmp_path / "small.toml"
    file.write_text(EXPERIMENT)
    return Plans(read_experiment(file), file, tmp_path / "results", ports=(8080,))


def test_everything_that_is_missing_is_listed_at_once(plans, tmp_path):
    plans.results.mkdir()
    engine = Missing("the command vllm", "pip install vllm")
    missing = missing_for(plans, HAS_NOTHING, [engine])
    assert [one.what.split(":")[0] for one in missing] == [
        "the command vllm",
        "GPUs",
        "cores",
        "memory",
        "the port 8080, on which somebody listens",
        "the trace",
        "the policy",
        f"a new place for {plans.results}",
        "the program torchrun, which a group's command names",
    ]
    assert all(one.fix for one in missing)


def test_where_all_is_there_nothing_is_missing(plans, tmp_path):
    (tmp_path / "trace.jsonl").write_text("{}\n")
    group = msgspec.structs.replace(plans.experiment.groups[1], policies=("queue_aware",))
    experiment = msgspec.structs.replace(plans.experiment, groups=(group,))
    assert missing_for(replace(plans, experiment=experiment), HAS_ALL, []) == ()


def test_an_experiment_on_cpus_needs_no_gpu(plans, tmp_path):
    file = tmp_path / "cpu.toml"
    file.write_text(EXPERIMENT.replace('"gpu"', '"cpu"'))
    plans = replace(plans, experiment=read_experiment(file))
    without = replace(HAS_ALL, gpus=0)
    assert "GPUs" not in listed(missing_for(plans, without, []))


def test_a_list_has_each_thing_with_its_fix_under_it():
    assert listed([Missing("a", "b"), Missing("c", "d")]) == "  a\n    -> b\n  c\n    -> d\n"


def test_gpus_are_those_that_the_drivers_tool_lists_and_the_environment_lets_through(tmp_path):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 0\necho 1\n")
    tool.chmod(0o755)
    path = {"PATH": f"{tmp_path}:/bin:/usr/bin"}
    assert Host.of(path).gpus == 2
    assert Host.of({**path, "CUDA_VISIBLE_DEVICES": "1"}).gpus == 1
    assert Host.of({**path, "CUDA_VISIBLE_DEVICES": ""}).gpus == 0
    assert Host.of({"PATH": str(tmp_path / "nowhere")}).gpus == 0


def test_a_port_on_which_somebody_listens_is_not_free():
    host = Host.of({})
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert not host.is_free(port)
    assert host.is_free(port)
    assert host.memory_mb > 0
