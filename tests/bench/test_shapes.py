"""The replicas that a group is made of, and the router before them, as they will be started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pointsman.bench.engines.machine import Machine
from pointsman.bench.experiment import read_experiment
from pointsman.bench.router import Asked, Behind, command_of
from pointsman.bench.shapes import engine_of, instances_of, model_of, placed
from pointsman.core.errors import InputError

TEXT = """
name = "shapes"
[model]
id = "org/small"
[engine]
name = "vllm"
max_running = 16
context_tokens = 2048
flags = ["--enforce-eager"]
[hardware]
device = "gpu"
[workload]
id = "few"
trace = "few.jsonl"
[[groups]]
name = "g0"
replicas = 1
[[groups]]
name = "g1"
replicas = 2
tp = 2
pp = 2
policies = ["round_robin"]
[[groups]]
name = "g2"
mode = "pd_disaggregated"
prefills = 2
decodes = 1
policies = ["round_robin"]
"""
A, B, C = (f"http://127.0.0.1:800{k}" for k in (1, 2, 3))


@pytest.fixture
def read(tmp_path):
    def of(text=TEXT):
        (tmp_path / "shapes.toml").write_text(text)
        return read_experiment(tmp_path / "shapes.toml")

    return of


def made(experiment, place: int):
    model = model_of(experiment)
    return instances_of(experiment, experiment.groups[place], model, Path("/shared"))


def test_every_replica_of_a_group_has_its_ranks_and_what_the_engine_was_asked_for(read):
    for each in made(read(), 1):
        assert (each.tp, each.pp, each.ranks) == (2, 2, 4)
        assert (each.max_running, each.context_tokens) == (16, 2048)
        assert each.flags == ("--enforce-eager",)


def test_of_a_split_the_first_ones_prefill_and_the_others_decode(read):
    replicas = made(read(), 2)
    assert [each.role for each in replicas] == ["prefill", "prefill", "decode"]
    assert {each.handoff.protocol for each in replicas} == {"nixl"}  # the engine's first
    assert {each.handoff.folder for each in replicas} == {Path("/shared")}
    assert [each.role for each in made(read(), 1)] == ["none", "none"]


def test_a_hand_off_that_is_named_is_taken(read):
    text = TEXT.replace("decodes = 1", 'decodes = 1\nhandoff = "shared_storage"')
    assert {each.handoff.protocol for each in made(read(text), 2)} == {"shared_storage"}


def test_no_gpu_is_given_to_two_replicas(read):
    replicas = placed(made(read(), 1), Machine(tuple("01234567"), Path()), "gpu")
    assert [each.gpus for each in replicas] == [("0", "1", "2", "3"), ("4", "5", "6", "7")]
    with pytest.raises(InputError, match="wants 8 GPUs; expected at most 4"):
        placed(made(read(), 1), Machine(tuple("0123"), Path()), "gpu")


def test_no_core_is_given_to_two_replicas(read):
    text = TEXT.replace('"gpu"', '"cpu"\ncores_per_rank = 3').replace(
        "replicas = 2", "replicas = 5"
    )
    cores = [core for each in made(read(text), 1) for core in each.cores]
    assert len(cores) == len(set(cores)) == 5 * 4 * 3  # however many there are: a dry run says so


def test_without_cores_a_rank_replicas_run_on_any(read):
    assert [each.cores for each in made(read(), 2)] == [(), (), ()]


def test_replicas_that_run_already_take_neither_gpus_nor_cores(read):
    text = TEXT.replace('"gpu"', '"gpu"\ncores_per_rank = 3').replace(
        "replicas = 1", f'replicas = 1\nurls = ["{A}"]'
    )
    experiment = read(text)
    (there,) = placed(made(experiment, 0), Machine((), Path()), "gpu")
    assert (there.url, there.gpus, there.cores) == (A, (), ())
    assert experiment.groups[0].gpus == 0
    assert experiment.cores_of(experiment.groups[0]) == 0


@pytest.mark.parametrize(
    ("name", "kind"),
    [("vllm", "Vllm"), ("sglang", "Sglang"), ("llamacpp", "LlamaCpp")],
)
def test_an_engine_is_started_by_its_own_code(read, name, kind):
    assert type(engine_of(read(TEXT.replace('"vllm"', f'"{name}"')))).__name__ == kind


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ('id = "org/small"', "org/small"),
        ('id = "/models/small-q8.gguf"', "small-q8"),
        ('id = "./models/small"', "small"),
        ('id = "/models/small.gguf"\nserved_name = "mine"', "mine"),
    ],
)
def test_requests_call_a_model_by_its_id_or_by_the_name_of_its_file(read, model, name):
    assert model_of(read(TEXT.replace('id = "org/small"', model))).name == name


# The router's command.

ASKED = Asked("queue_aware", Path("log.jsonl"))


def words(asked: Asked, *behind: Behind) -> str:
    return " ".join(command_of(asked, behind, 8000)[1:])


def test_the_router_gets_every_replica_the_policy_and_a_log_of_its_own():
    assert words(ASKED, Behind(A), Behind(B)) == (
        f"-m pointsman serve --listen 127.0.0.1:8000 --replica {A} --replica {B}"
        " --policy queue_aware --decision-log log.jsonl --decision-log-mib 0 --scrape-interval-s 1"
    )


def test_of_a_split_it_is_told_who_prefills_who_decodes_and_how():
    split = (Behind(A, "prefill", 9001), Behind(B, "prefill", 9001), Behind(C, "decode"))
    said = words(replace(ASKED, handoff="sglang"), *split)
    assert f"--prefill {A} {B} --decode {C} --handoff sglang --bootstrap-port 9001 " in said
    assert "--replica" not in said


def test_costs_objectives_and_flags_of_ones_own_come_last():
    asked = replace(ASKED, costs=Path("c.json"), goodput=("ttft:500",), flags=("--listen", "x:1"))
    assert words(asked, Behind(A)).endswith(" --costs c.json --goodput ttft:500 --listen x:1")


def test_prefill_replicas_with_bootstrap_ports_of_their_own_are_refused():
    split = replace(ASKED, handoff="sglang")
    first, second = Behind(A, "prefill", 8998), Behind(B, "prefill", 8999)
    assert "--bootstrap-port 8998" in words(split, first, Behind(B, "decode"))
    with pytest.raises(InputError, match=r"2 prefill replicas have bootstrap ports \[8998, 8999\]"):
        command_of(split, (first, second), 8000)
