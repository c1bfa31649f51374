"""The file of an experiment: what it says, and each way to get it wrong."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from pointsman.bench import experiment as file_of
from pointsman.bench.experiment import read_experiment
from pointsman.core.errors import InputError

LESSON = Path(__file__).resolve().parents[2] / "examples" / "lesson81.toml"

SMALL = """
name = "small"
repeats = 2
order = "given"

[model]
id = "tiny"

[engine]
name = "llamacpp"

[hardware]
device = "cpu"

[workload]
id = "few"
trace = "trace.jsonl"

[slo]
ttft_ms = 500

[[groups]]
name = "g0"
replicas = 1

[[groups]]
name = "g1_several"
replicas = 2
policies = ["round_robin", "queue_aware"]

[[groups]]
name = "g2"
mode = "pd_disaggregated"
prefills = 1
decodes = 2
policies = ["queue_aware"]
"""


@pytest.fixture
def read(tmp_path):
    def of(text):
        (tmp_path / "small.toml").write_text(text)
        return read_experiment(tmp_path / "small.toml")

    return of


def test_the_lessons_experiment_has_the_lessons_values():
    # The lesson on distributed inference, step 5.1.
    experiment = read_experiment(LESSON)
    workload = experiment.workload
    assert experiment.model.id == "Qwen/Qwen2.5-0.5B-Instruct"
    assert (experiment.engine.name, experiment.hardware.world_size) == ("vllm", 2)
    assert (workload.concurrency, workload.max_tokens, workload.kv_bytes_per_token) == (
        1,
        64,
        16384,
    )
    assert workload.generate.prompt_tokens == "512"
    shapes = [(g.name, g.mode, g.replicas, g.tp, g.pp) for g in experiment.groups]
    assert shapes == [
        ("g0_single_replica", "replica", 1, 1, 1),
        ("g1_multi_replica", "replica", 2, 1, 1),
        ("g2_pd_disaggregated", "pd_disaggregated", 2, 1, 1),
    ]


def test_several_policies_of_a_group_are_lettered_runs(read):
    runs = [(run.name, run.policy) for run in read(SMALL).runs()]
    assert runs == [
        ("g0", None),
        ("g1a_several", "round_robin"),
        ("g1b_several", "queue_aware"),
        ("g2", "queue_aware"),
    ]


def test_in_the_order_given_a_runs_repeats_follow_each_other(read):
    turns = [(turn.run.name, turn.repeat) for turn in read(SMALL).turns()]
    assert turns[:4] == [("g0", 1), ("g0", 2), ("g1a_several", 1), ("g1a_several", 2)]


def test_abba_goes_through_all_runs_and_back(read):
    turns = read(SMALL.replace('"given"', '"abba"')).turns()
    names = ["g0", "g1a_several", "g1b_several", "g2"]
    assert [turn.run.name for turn in turns] == [*names, *reversed(names)]
    assert [turn.repeat for turn in turns] == [1] * 4 + [2] * 4


def test_the_world_is_as_large_as_the_largest_group(read):
    assert read(SMALL).world_size == 3
    assert read(SMALL.replace("decodes = 2", "decodes = 2\ntp = 2")).world_size == 6


def test_objectives_are_those_of_goodput(read):
    assert read(SMALL).slo.objectives().ttft_ms == 500.0


@pytest.mark.parametrize(
    ("there", "instead", "said"),
    [
        ("repeats = 2", "repeat = 2", "key 'repeat' is unknown; expected one of"),
        ("repeats = 2", "repeat = 2", "did you mean repeats?"),
        ('id = "tiny"', 'ident = "tiny"', "small.toml: model: key 'ident' is unknown"),
        ("decodes = 2", "decode = 2", "groups[2]: key 'decode' is unknown"),
        ("decodes = 2", "decode = 2", "did you mean decodes?"),
        ('id = "tiny"', "", "small.toml: model: id is missing; expected one"),
        ("repeats = 2", "repeats = 0", "repeats is 0; expected an integer >= 1"),
        ("repeats = 2", "repeats = 2.5", "repeats is 2.5; expected an integer"),
        ("ttft_ms = 500", "ttft_ms = -1", "slo: ttft_ms is -1; expected a number > 0"),
        ("ttft_ms = 500", "ttft_ms = [1]", "slo: ttft_ms is [1]; expected a number"),
        ('"given"', '"random"', "order 'random' is unknown; expected one of abba, given"),
        ('"llamacpp"', '"lamacpp"', "engine: name 'lamacpp' is unknown"),
        ('"llamacpp"', '"lamacpp"', "did you mean llamacpp?"),
        ('"cpu"', '"tpu"', "hardware: device 'tpu' is unknown; expected one of cpu, gpu"),
        ('name = "g0"', 'name = "a/b"', "groups[0]: name is 'a/b'"),
        ('"pd_disaggregated"', '"pd_disagregated"', "did you mean pd_disaggregated?"),
        ("prefills = 1\n", "", "groups[2]: the mode is pd_disaggregated; expected prefills"),
        ("decodes = 2", "decodes = 2\nreplicas = 2", "replicas is 2; expected 3, prefills and"),
        ("replicas = 1", "replicas = 1\nprefills = 1", "expected replicas alone"),
        ("replicas = 1", "", "groups[0]: replicas is missing; expected how many"),
        ('policies = ["queue_aware"]', "", "groups[2]: there is a choice to make; expected polic"),
        ('["queue_aware"]', '["queue_awar"]', "did you mean queue_aware?"),
        ("replicas = 1", 'replicas = 1\npolicies = ["random"]', "expected none for one"),
        ("replicas = 1", 'replicas = 1\nurls = ["u", "v"]', "urls are 2; expected 1"),
        ('trace = "trace.jsonl"', "", "workload: expected trace or a table generate"),
        ('id = "few"', 'id = "few"\nload = "closed"', "load is closed; expected concurrency"),
        ('id = "few"', 'id = "few"\nload = "close"', "did you mean closed?"),
        ('name = "g2"', 'name = "g0"', "the group g0 is there twice"),
        ('"llamacpp"', '"external"', "external starts nothing; expected urls for the group g0"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(read, there, instead, said):
    assert there in SMALL
    with pytest.raises(InputError) as refused:
        read(SMALL.replace(there, instead))
    assert said in str(refused.value)
    assert str(refused.value).count("small.toml") == 1


GENERATED = """
[workload.generate]
requests = 10
prompt_tokens = "512"
output_tokens = "64"
"""


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (GENERATED, "load is open; expected generate.rate_rps"),
        (GENERATED + 'rate_rps = 1\nturns = "2"', "turns and think_time_ms go together"),
        (GENERATED.replace('"512"', '"normall:mean=3"'), "did you mean normal?"),
    ],
)
def test_what_is_wrong_with_a_generator_is_named(read, wrong, said):
    with pytest.raises(InputError) as refused:
        read(SMALL.replace('trace = "trace.jsonl"', wrong))
    assert said in str(refused.value)


def test_what_is_no_toml_and_what_is_not_there_are_one_error_each(read, tmp_path):
    with pytest.raises(InputError, match=r"small\.toml: not TOML"):
        read("[model")
    with pytest.raises(InputError, match="no such file"):
        read_experiment(tmp_path / "absent.toml")


PAGE = (LESSON.parents[1] / "docs" / "experiments.md").read_text()
TABLES = (
    file_of.Experiment,
    file_of.Model,
    file_of.EngineWanted,
    file_of.HardwareWanted,
    file_of.WorkloadWanted,
    file_of.Generated,
    file_of.RouterWanted,
    file_of.Slo,
    file_of.Group,
)


@pytest.mark.parametrize("table", TABLES)
def test_every_key_is_on_the_page(table):
    named = set(re.findall(r"(?<=[`\[.])\w+(?=[`\].])", PAGE))
    assert {field.name for field in msgspec.structs.fields(table)} <= named


def test_a_group_cannot_have_the_name_of_a_file_of_decisions(read):
    with pytest.raises(InputError, match="the group decision has the name of a file of decisions"):
        read(SMALL.replace('name = "g0"', 'name = "decision"'))


def test_there_are_no_more_policies_than_letters(read):
    many = ", ".join(['"round_robin"'] * 27)
    with pytest.raises(InputError, match="policies are 27; expected at most 26"):
        read(SMALL.replace('"round_robin", "queue_aware"', many))
