"""``pointsman bench`` before anything is measured, and what is asked of it wrongly."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pointsman.bench.demo import DEMO
from tests.bench.engines.answering import answering
from tests.bench.experiments import (
    bench,
    command,
    environment,
    experiment,
    group_in,
    one,
    vllm_here,
    written,
)

ROOT = Path(__file__).resolve().parents[2]
G0 = 'name = "g0"\nreplicas = 1\n'
G1 = 'name = "g1"\nreplicas = 2\ntp = 2\npolicies = ["round_robin", "queue_aware"]\n'
G2 = (
    'name = "g2"\nmode = "pd_disaggregated"\nprefills = 1\ndecodes = 2\n'
    'policies = ["round_robin"]\nhandoff = "shared_storage"\n'
)
WITHOUT = """
import sys
sys.modules["gguf"] = None
from pointsman.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def here(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# What is missing.


def test_everything_that_is_missing_is_listed_at_once_each_with_its_fix(tmp_path, capsys, no_gpu):
    text = experiment(
        [G0, G1, 'name = "own"\nreplicas = 1\ncommand = ["no-such-program"]\n'],
        engine='name = "vllm"\ncommand = "/no/vllm"',
        hardware='device = "gpu"\nmemory_mb = 1e12\ncores_per_rank = 100000',
        model='id = "/no/model"',
    )
    start = text.index("[workload.generate]")
    end = text.index("[[groups]]")
    file = tmp_path / "small.toml"
    file.write_text(f'{text[:start]}trace = "absent.jsonl"\n{text[end:]}')
    (tmp_path / "results" / "mine").mkdir(parents=True)
    assert bench(file, "--check", "--label", "mine") == 1
    said = capsys.readouterr().out
    assert [line.strip() for line in said.splitlines() if not line.startswith("    ->")] == [
        f"{file}: what is missing:",
        "the command /no/vllm",
        "the model /no/model",
        "GPUs: 4 for the largest group, 0 visible",
        *[line.strip() for line in said.splitlines() if line.startswith("  cores: 400000 for")],
        *[line.strip() for line in said.splitlines() if line.startswith("  memory: 1,000,000,0")],
        f"the trace: {tmp_path / 'absent.jsonl'}: no such file",
        f"a new place for {tmp_path / 'results' / 'mine'}: results are never overwritten",
        "the program no-such-program, which a group's command names",
    ]
    assert said.count("\n    -> ") == 8


def test_where_all_is_there_nothing_is_missing_and_nothing_is_run(tmp_path, capsys):
    with answering() as engine:
        file = written(tmp_path, [one(engine)])
        assert bench(file, "--check") == 0
    assert capsys.readouterr().out == f"{file}: nothing is missing; engine external\n"
    assert here(tmp_path) == {"small.toml"}
    assert engine.asked == []


def test_what_is_missing_keeps_a_run_from_beginning(tmp_path, capsys):
    file = written(tmp_path, [G0], engine='name = "vllm"\ncommand = "/no/vllm"')
    assert bench(file) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("pointsman: bench: nothing was run; what is missing:\n")
    assert "the command /no/vllm\n    -> pip install vllm" in captured.err
    assert not (tmp_path / "results").exists()


def test_another_version_than_is_asked_for_is_missing(tmp_path, capsys):
    tables = vllm_here(tmp_path)
    tables["engine"] += '\nversion = "0.31.0"'
    file = written(tmp_path, [G0], **tables)
    assert bench(file, "--check") == 1
    assert "vllm 0.31.0: this machine has 0.32.0+cpu\n    -> install" in capsys.readouterr().out
    file.write_text(file.read_text().replace("0.31.0", "0.32.0+cpu"))
    assert bench(file, "--check") == 0
    assert "nothing is missing; engine vllm, 0.32.0+cpu" in capsys.readouterr().out


def test_of_what_runs_already_the_version_that_counts_is_its_own(tmp_path, capsys):
    with answering() as engine:
        text = 'name = "external"\nversion = "0.31.0"'
        file = written(tmp_path, [one(engine)], engine=text)
        assert bench(file, "--check") == 1
        assert f"external 0.31.0: {engine.url} has vllm 0.32.0" in capsys.readouterr().out
        file.write_text(file.read_text().replace("0.31.0", "0.32.0"))
        assert bench(file, "--check") == 0


def test_a_server_that_does_not_answer_or_serves_another_model_is_missing(tmp_path, capsys):
    with answering() as engine:
        file = written(tmp_path, [one(engine)], model='id = "other"')
        assert bench(file, "--check") == 1
        assert f"the model other at {engine.url}\n    -> it serves: m" in capsys.readouterr().out
    assert bench(file, "--check") == 1
    assert f"an answer of {engine.url}" in capsys.readouterr().out


def test_what_the_demos_model_is_made_by_is_missing_where_it_is_not_installed(tmp_path):
    told = {**environment(), "XDG_CACHE_HOME": str(tmp_path)}
    words = [sys.executable, "-c", WITHOUT, "bench", "--demo", "--check"]
    done = subprocess.run(words, check=False, env=told, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "the module gguf, by which the model tiny is made" in done.stdout
    assert done.stdout.count("-> ") == done.stdout.count("-> pip install ") == 1
    assert "[llamacpp]" in done.stdout
    assert "GGUF" not in done.stdout


# Dry runs.


def test_where_gpus_are_asked_for_and_missing_the_run_is_dry(tmp_path, capsys, no_gpu):
    tables = vllm_here(tmp_path)
    own = 'name = "own"\nreplicas = 1\ncommand = ["my-bench", "--out", "{result}"]\n'
    file = written(tmp_path, [G0, G1, G2, own], hardware='device = "gpu"', **tables)
    before = here(tmp_path)
    assert bench(file) == 0
    said = capsys.readouterr().out
    assert said.startswith("dry run: nothing was measured, nothing was written\n")
    assert here(tmp_path) == before
    assert "GPUs: 4 for the largest group, 0 visible" in said
    paragraphs = re.split(r"^(?=\w)", said.partition("it would run:\n")[2], flags=re.MULTILINE)
    lines = {text.partition("\n")[0]: text.splitlines()[1:] for text in paragraphs if text}
    assert list(lines)[:5] == ["g0", "g1a", "g1b", "g2", "own"]
    gpus = {
        name: re.findall(r"CUDA_VISIBLE_DEVICES=(\S+)", "\n".join(lines[name])) for name in lines
    }
    assert gpus["g0"] == ["0"]
    assert gpus["g1a"] == gpus["g1b"] == ["0,1", "2,3"]
    assert gpus["g2"] == ["0", "1", "2"]
    assert lines["own"] == ["  my-bench --out '{result}'"]


def test_a_dry_run_shows_the_commands_as_a_shell_takes_them(tmp_path, capsys, no_gpu):
    file = written(tmp_path, [G1, G2], hardware='device = "gpu"', **vllm_here(tmp_path))
    bench(file, "--dry-run")
    said = capsys.readouterr().out
    assert said.count(" serve ") - said.count("pointsman serve ") == 2 * 2 + 3
    assert said.count("--tensor-parallel-size 2") == 4
    replicas = "--replica http://127.0.0.1:8001 --replica http://127.0.0.1:8002"
    assert f"{replicas} --policy round_robin" in said
    assert f"{replicas} --policy queue_aware" in said
    split = "--prefill http://127.0.0.1:8001 --decode http://127.0.0.1:8002 http://127.0.0.1:8003"
    assert f"{split} --handoff shared_storage --policy round_robin" in said
    assert said.endswith("3 repeats of each, one group after the other\n")


def test_the_lessons_experiment_is_dry_without_its_gpus(tmp_path, capsys, no_gpu):
    lesson = ROOT / "examples" / "lesson81.toml"
    assert bench_at(lesson, tmp_path) == 0
    assert "GPUs: 2 for the largest group, 0 visible" in capsys.readouterr().out
    assert here(tmp_path) == set()


def test_what_runs_already_elsewhere_on_gpus_needs_none_here(tmp_path, capsys, no_gpu):
    with answering() as engine:
        file = written(tmp_path, [one(engine)], hardware='device = "gpu"', head="repeats = 1")
        assert bench(file) == 0
    group = group_in(tmp_path / "results" / "run-1", "g0")
    assert group["evidence_level"] == "real_engine_gpu"
    assert group["hardware"]["accelerators"] == 0
    assert group["metrics"]["ttft_ms"] > 0


def test_a_dry_run_of_anything_may_be_asked_for(tmp_path, capsys):
    with answering() as engine:
        file = written(tmp_path, [one(engine)])
        assert bench(file, "--dry-run", "--order", "abba", "--repeats", "2") == 0
    said = capsys.readouterr().out
    assert f"  {engine.url}, which runs already\n" in said
    assert said.endswith("2 repeats of each, forwards, backwards\n")
    assert here(tmp_path) == {"small.toml"}


# Labels.


def test_runs_get_labels_of_their_own_and_nothing_is_ever_overwritten(tmp_path, capsys):
    with answering() as engine:
        file = written(tmp_path, [one(engine)], head="repeats = 1")
        assert bench(file) == 0
        first = {path: path.read_bytes() for path in files_in(tmp_path / "results")}
        assert bench(file) == 0
        assert bench(file, "--label", "mine") == 0
        assert bench(file, "--label", "mine") == 1
    assert "results are never overwritten\n    -> another --label" in capsys.readouterr().err
    assert here(tmp_path / "results") == {"run-1", "run-2", "mine"}
    assert all(path.read_bytes() == content for path, content in first.items())
    for label in ("run-1", "run-2", "mine"):
        assert group_in(tmp_path / "results" / label, "g0")["label"] == label


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


# What is wrong.


def bench_at(file: Path, results: Path, *words: str) -> int:
    from pointsman.cli.main import main

    return main(["bench", str(file), "--output", str(results / "results"), *words])


@pytest.mark.parametrize(
    ("there", "instead", "message"),
    [
        ('handoff = "shared_storage"', 'handoff = "nixxl"', "hand-off 'nixxl' is unknown"),
        ('handoff = "shared_storage"', 'handoff = "nixxl"', "did you mean nixl?"),
        ("requests = 12", "requests = 0", "requests is 0; expected an integer >= 1"),
        ('device = "cpu"', 'device = "cpus"', "did you mean cpu?"),
    ],
)
def test_an_experiment_that_cannot_be_is_refused_before_anything_starts(
    tmp_path, capsys, there, instead, message
):
    file = written(tmp_path, [G0, G2], **vllm_here(tmp_path))
    assert there in file.read_text()
    file.write_text(file.read_text().replace(there, instead))
    assert bench(file) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert message in captured.err
    assert not (tmp_path / "results").exists()


def test_llamacpp_has_no_ranks(tmp_path, capsys):
    group = 'name = "g0"\nreplicas = 1\ntp = 2\n'
    file = written(tmp_path, [group], engine='name = "llamacpp"', model='id = "/m.gguf"')
    assert bench(file) == 2
    assert "engine llamacpp: tp x pp is 2; expected 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "expected the file of an experiment, or --demo, one of the two"),
        ([str(DEMO), "--demo"], "expected the file of an experiment, or --demo, one of the two"),
        ([str(DEMO), "--repeats", "0"], "--repeats is 0; expected an integer >= 1"),
        ([str(DEMO), "--label", "../x"], "label is '../x'; expected letters, digits"),
        (["absent.toml"], "absent.toml: no such file"),
    ],
)
def test_what_is_asked_wrongly_is_said_in_one_line(capsys, words, message):
    from pointsman.cli.main import main

    assert main(["bench", *words]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_the_demo_is_an_experiment_of_all_three_groups(capsys):
    from pointsman.bench.experiment import read_experiment

    demo = read_experiment(DEMO)
    assert [group.mode for group in demo.groups] == ["replica", "replica", "pd_disaggregated"]
    assert [group.engines for group in demo.groups] == [1, 2, 2]
    assert (demo.engine.name, demo.hardware.device) == ("llamacpp", "cpu")


def test_the_command_is_one_that_a_shell_takes(tmp_path):
    """The installed module, as a process."""
    done = subprocess.run(
        command(tmp_path / "absent.toml"),
        check=False,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("pointsman: ")
