"""``--timeline`` and ``--gantt``, as a user calls them."""

from __future__ import annotations

import ast
import json
import math
import re
import shlex
from pathlib import Path

import pytest

from pointsman.cli.main import main
from tests.cli.test_commands import FOUR, written
from tests.replay.test_replay import logged
from tests.report.timeline.trace_reader import read_trace

ROOT = Path(__file__).resolve().parents[2]
TOKENS = [
    {"request_id": f"t{k}", "arrival_ms": 40 * k, "prompt_tokens": 900, "output_tokens": 30}
    for k in range(12)
]
FLEET = ("--fleet", "2xh100", "--model", "llama-3.1-8b")


@pytest.fixture
def four(tmp_path) -> str:
    return written(tmp_path / "four.jsonl", FOUR)


@pytest.fixture
def tokens(tmp_path) -> str:
    return written(tmp_path / "tokens.jsonl", TOKENS)


def run(capsys, *words: object) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def nearest_rank(values: list[float], percent: int) -> float:
    return sorted(values)[max(0, math.ceil(percent * len(values) / 100) - 1)]


def test_waits_read_off_the_slices_are_the_documents(capsys, tmp_path, four):
    target = tmp_path / "trace.json"
    code, out, err = run(
        capsys, "compare", four, "--replicas", 2, "--format", "json", "--timeline", target
    )
    assert code == 0
    assert f"wrote {target}; open it at https://ui.perfetto.dev" in err
    trace = read_trace(target)
    for result in json.loads(out)["results"]:
        served = trace.ms("served", result["policy"])
        waits = [served[row["request_id"]][0] - row["arrival_ms"] for row in FOUR]
        latencies = [served[row["request_id"]][1] - row["arrival_ms"] for row in FOUR]
        for percent in (50, 95):
            figures = result["metrics"]
            assert nearest_rank(waits, percent) == pytest.approx(
                figures[f"p{percent}_queue_wait_ms"]
            )
            assert nearest_rank(latencies, percent) == pytest.approx(
                figures[f"p{percent}_latency_ms"]
            )


def test_ttft_and_e2e_read_off_a_fleets_slices_are_the_documents(capsys, tmp_path, tokens):
    target = tmp_path / "trace.json.gz"
    policies = ("--policy", "round_robin", "--policy", "least_requests")
    code, out, _ = run(
        capsys, "compare", tokens, *FLEET, *policies, "--format", "json", "--timeline", target
    )
    assert code == 0
    trace = read_trace(target)
    arrivals = {row["request_id"]: row["arrival_ms"] for row in TOKENS}
    for result in json.loads(out)["results"]:
        prefills = trace.ms("prefill", result["label"])
        decodes = trace.ms("decode", result["label"])
        ttft = [prefills[name][1] - at for name, at in arrivals.items()]
        e2e = [decodes[name][1] - at for name, at in arrivals.items()]
        for percent in (50, 95):
            for values, figure in ((ttft, "ttft_ms"), (e2e, "e2e_ms")):
                wanted = result["metrics"][figure][f"p{percent}"]
                assert nearest_rank(values, percent) == pytest.approx(wanted)


def test_the_result_is_the_same_with_a_timeline(capsys, tmp_path, tokens):
    words = ("compare", tokens, *FLEET, "--policy", "round_robin", "--format", "json")
    _, without, _ = run(capsys, *words)
    _, with_it, _ = run(capsys, *words, "--timeline", tmp_path / "trace.json")
    assert with_it == without


def test_runs_are_in_the_order_of_the_results(capsys, tmp_path, four):
    target = tmp_path / "trace.json"
    _, out, _ = run(
        capsys, "compare", four, "--replicas", 2, "--format", "json", "--timeline", target
    )
    order = [result["policy"] for result in json.loads(out)["results"]]
    names = [name.partition(": ")[0] for name in read_trace(target).processes.values()]
    assert list(dict.fromkeys(names)) == order


def test_a_replay_writes_what_the_log_holds(capsys, tmp_path):
    target = tmp_path / "trace.json"
    code, _, err = run(capsys, "replay", logged(tmp_path / "log"), "--timeline", target)
    assert code == 0
    assert "timeline of recorded: locality_aware(slack_ms=5): " in err
    assert len(read_trace(target).instants) == 60


def test_a_replay_on_a_fleet_writes_both_simulated_runs_too(capsys, tmp_path):
    target = tmp_path / "trace.json"
    log = logged(tmp_path / "log", "round_robin")
    flags = ("--policy", "least_requests", "--fleet", "3xh100", "--model", "llama-3.1-8b")
    assert run(capsys, "replay", log, *flags, "--timeline", target)[0] == 0
    labels = {name.rpartition(": ")[0] for name in read_trace(target).processes.values()}
    assert {"recorded: round_robin", "round_robin", "least_requests"} <= labels


def test_the_chart_follows_the_table(capsys, four):
    code, out, _ = run(capsys, "compare", four, "--replicas", 2, "--gantt")
    assert code == 0
    table, _, chart = out.partition(". queued   # served\n")
    assert "queue wait ms" in table
    assert chart.count("replica request") == 3


def test_the_chart_is_printed_where_the_document_goes_to_a_file(capsys, tmp_path, four):
    target = tmp_path / "result.json"
    _, out, _ = run(capsys, "compare", four, "--replicas", 2, "--gantt", "--output", target)
    assert ". queued   # served" in out
    assert json.loads(target.read_text())["results"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--gantt", "--format", "json"), "--gantt goes with the table, and --format is json"),
        (
            ("--output", "x.json", "--timeline", "x.json"),
            "--timeline is x.json, and so is --output",
        ),
        (("--timeline", "/no/such/folder/x.json"), "cannot write"),
    ],
)
def test_flags_that_cannot_be_are_refused_before_any_work(
    capsys, tmp_path, monkeypatch, four, flags, message
):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, "compare", four, "--replicas", 2, *flags)
    assert code in (1, 2)
    assert out == ""
    assert message in err
    assert not Path("x.json").exists()


def test_a_chart_of_too_many_requests_is_refused_with_what_to_do(capsys, tmp_path):
    many = written(tmp_path / "many.jsonl", [{**FOUR[1], "request_id": str(k)} for k in range(41)])
    code, out, err = run(capsys, "compare", many, "--replicas", 2, "--gantt")
    assert (code, out) == (2, "")
    assert "the workload has 41 requests; expected at most 40, as with --limit 40" in err


def test_the_page_shows_what_its_commands_print(capsys, tmp_path, monkeypatch):
    page = (ROOT / "docs" / "timeline.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    texts = [text.removeprefix("mkdir -p out\n") for text in blocks]
    commands = [shlex.split(text.replace("\\\n", " ")) for text in texts]
    (shown,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    printed = [run(capsys, *command[1:]) for command in commands]
    assert [code for code, *_ in printed] == [0, 0]
    assert printed[0][1].endswith(f"\n\n{shown}")
    assert read_trace(tmp_path / "out" / "trace.json.gz").slices


def test_the_four_requests_of_the_examples_are_the_lessons(shared):
    """Compared with the lesson's own text, where it lies beside the checkout."""
    lesson = shared("seeds/par_replica_routing.txt").read_text()
    body = re.search(r"def _routing_requests\(\):\s+return (\[.*?\])\n", lesson, re.DOTALL)
    lines = (ROOT / "examples" / "four_requests.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == ast.literal_eval(body.group(1))
