"""Two real ranks on the CPU, by torchrun and gloo. No time is asserted."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pointsman.cli.main import main

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="torch is not installed (extra [torch])"
    ),
]

TORCHRUN = Path(sys.executable).with_name("torchrun")
FAILING = Path(__file__).with_name("failing_rank.py")
MODULE = ("-m", "pointsman.bench.mechanism")
SMALL = ("--compute-dim", "32", "--repeats", "3", "--warmup", "1")
DEADLINE_S = 120


def started(program, output, *flags):
    command = [TORCHRUN, "--standalone", "--nproc_per_node", "2", *program, *SMALL]
    return subprocess.Popen(
        [*command, "--output", output, *flags],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(program, output, *flags):
    """Exit code, and what rank 0 said."""
    with started(program, output, *flags) as run:
        _, errors = run.communicate(timeout=DEADLINE_S)
    return run.returncode, [line for line in errors.splitlines() if line.startswith("pointsman: ")]


def process_of_rank(launcher, rank):
    """The process that a torchrun started as one of its ranks."""
    for entry in Path("/proc").iterdir():
        try:
            status = (entry / "stat").read_text().rpartition(")")[2].split()
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if int(status[1]) == launcher and f"RANK={rank}".encode() in variables:
            return int(entry.name)
    raise AssertionError(f"rank {rank} is not there")


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    output = tmp_path_factory.mktemp("run") / "results" / "result.json"
    code, said = ended(MODULE, output)
    assert code == 0, said
    return json.loads(output.read_text())


def test_round_robin_makes_6_and_26_products_and_least_loaded_17_and_15(document):
    units = {
        row["strategy"]: row["request_cost_units_per_rank"] for row in document["metrics"]["rows"]
    }
    assert units == {"round_robin": [6, 26], "least_loaded": [17, 15]}


def test_the_file_has_what_the_lesson_reads_and_says_that_it_is_of_a_cpu(document):
    required = {"workload", "hardware", "metrics", "evidence_level", "failure", "decision"}
    assert set(document) >= required | {"project", "environment_profile"}
    assert document["environment_profile"] == "PAR-CPU-MECHANISM"
    assert document["evidence_level"] == "mechanism_cpu"
    assert {"torch", "gloo"} <= set(document["versions"])
    assert (document["failure"], document["decision"]) == (None, None)


def test_a_row_has_the_time_of_each_rank_in_each_repeat(document):
    for row in document["metrics"]["rows"]:
        assert [len(repeat["rank_elapsed_ms"]) for repeat in row["repeats"]] == [2, 2, 2]
        assert row["max_rank_makespan_ms"] == max(row["rank_elapsed_ms"]) > 0
        requests_per_s = 8 / row["max_rank_makespan_ms"] * 1e3
        assert row["throughput_requests_per_s_proxy"] == pytest.approx(requests_per_s, abs=1e-5)


def test_a_result_that_is_there_is_left_and_rank_0_alone_says_so(tmp_path):
    output = tmp_path / "result.json"
    output.write_text("mine")
    code, said = ended(MODULE, output)
    assert code == 1
    assert said == [
        f"pointsman: {output}: is already there, and results are never overwritten;"
        " expected a new name, such as with another --run-label"
    ]
    assert output.read_text() == "mine"


def test_a_wrong_flag_is_one_error_of_rank_0(tmp_path):
    code, said = ended(MODULE, tmp_path / "result.json", "--dtype", "bfloat")
    assert code == 1
    assert len(said) == 1
    assert "did you mean bfloat16?" in said[0]
    assert list(tmp_path.iterdir()) == []


def test_what_a_rank_failed_of_is_in_the_file_that_rank_0_writes(tmp_path):
    output = tmp_path / "result.json"
    code, said = ended((FAILING,), output)
    document = json.loads(output.read_text())
    assert code == 1
    assert document["failure"]["stage"] == "measuring"
    assert document["failure"]["reason"] == "rank 1: RuntimeError: the stand-in is out of memory"
    assert document["metrics"]["rows"] == []
    assert said[-1] == f"pointsman: wrote {output}, which says so"


def test_a_rank_that_is_killed_ends_the_run_with_a_failure_and_no_rank_hangs(tmp_path):
    output = tmp_path / "result.json"
    with started(MODULE, output, "--repeats", "100000") as run:
        for line in run.stderr:
            if "ranks by gloo" in line:
                break
        first = process_of_rank(run.pid, 0)
        os.kill(process_of_rank(run.pid, 1), signal.SIGKILL)
        run.communicate(timeout=DEADLINE_S)
    failure = json.loads(output.read_text())["failure"]
    assert (run.returncode, failure["stage"]) == (1, "measuring")
    assert not Path(f"/proc/{first}").exists()


def test_a_rank_that_does_not_come_is_waited_for_no_longer_than_the_timeout(tmp_path):
    output = tmp_path / "result.json"
    with started(MODULE, output, "--repeats", "100000", "--timeout-s", "3") as run:
        for line in run.stderr:
            if "ranks by gloo" in line:
                break
        asleep = process_of_rank(run.pid, 1)
        os.kill(asleep, signal.SIGSTOP)
        for line in run.stderr:
            if "which says so" in line:
                break
        os.kill(asleep, signal.SIGCONT)
        run.communicate(timeout=DEADLINE_S)
    failure = json.loads(output.read_text())["failure"]
    assert (run.returncode, failure["stage"]) == (1, "measuring")
    assert "timed out" in failure["reason"].lower()


def test_a_run_that_is_interrupted_says_so_in_its_file(tmp_path):
    output = tmp_path / "result.json"
    with started(MODULE, output, "--repeats", "100000") as run:
        for line in run.stderr:
            if "ranks by gloo" in line:
                break
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=DEADLINE_S)
    assert run.returncode != 0
    assert json.loads(output.read_text())["failure"]["reason"] == "interrupted"


def test_without_torchrun_the_module_says_how_it_is_started():
    command = [sys.executable, *MODULE, "--output", "result.json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("pointsman: mechanism: torchrun did not start this process")


def test_the_command_runs_the_cpu_form_and_prints_the_table(tmp_path, capfd):
    output = tmp_path / "result.json"
    assert main(["mechanism", "--cpu", *SMALL, "--output", str(output)]) == 0
    said = capfd.readouterr()
    assert json.loads(output.read_text())["failure"] is None
    assert "17 15" in said.out
    assert said.err.splitlines() == [
        "2 ranks by gloo; rounds of each strategy: 1 to warm up, 3 that count",
        f"wrote {output}",
    ]
