"""compare, estimate, decide and policies, as a user calls them."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pointsman.cli.main import build_parser, main
from pointsman.cli.options import FORMAT_NAMES
from tests.interrupts import interruptible

FOUR = [
    {"request_id": "a", "arrival_ms": 0, "service_ms": 20, "prefix_key": "x", "session_id": "s"},
    {"request_id": "b", "arrival_ms": 1, "service_ms": 9, "prefix_key": "y"},
    {"request_id": "c", "arrival_ms": 2, "service_ms": 9, "prefix_key": "x"},
    {"request_id": "d", "arrival_ms": 3, "service_ms": 7, "prefix_key": "y", "session_id": "s"},
]
TOKENS = [
    {"request_id": "a", "arrival_ms": 0, "prompt_tokens": 128, "output_tokens": 64},
    {"request_id": "b", "arrival_ms": 0, "prompt_tokens": 64, "output_tokens": 32},
]
LESSON_COSTS = {
    "prefill_ms_per_token": 0.01,
    "decode_ms_per_token": 0.02,
    "comm_ms_per_token": 0.03,
    "pipeline_penalty_ms": 0.25,
    "tp_degree": 2,
    "pp_stages": 1,
}


@pytest.fixture
def trace(tmp_path) -> str:
    return written(tmp_path / "four.jsonl", FOUR)


def written(path: Path, rows: list[dict]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def run(capsys, *words: str) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_json_of_a_comparison_has_the_documented_shape(capsys, trace):
    code, out, err = run(capsys, "compare", trace, "--replicas", 2, "--format", "json")
    document = json.loads(out)
    assert (code, err) == (0, "")
    assert document["schema"] == "pointsman.compare/1"
    assert document["workload"]["requests"] == 4
    assert len(document["workload"]["sha256"]) == 64
    assert document["fleet"]["replicas"] == 2
    assert document["fleet"]["costs"]["prefill_ms_per_token"] == 0.05
    policies = {result["policy"] for result in document["results"]}
    assert policies == {"round_robin", "queue_aware", "locality_aware"}
    for result in document["results"]:
        assert sum(result["reasons"].values()) == 4
        assert sum(replica["requests"] for replica in result["replicas"]) == 4
        assert set(result["replicas"][0]) == {"requests", "busy_ms", "tokens"}
    order = [
        (r["metrics"]["p95_queue_wait_ms"], -r["metrics"]["throughput_requests_per_s"])
        for r in document["results"]
    ]
    assert order == sorted(order)


def test_the_figures_are_the_lessons(capsys, trace):
    from pointsman import compare_replica_strategies

    _, out, _ = run(capsys, "compare", trace, "--replicas", 2, "--format", "json")
    ours = {result["policy"]: result["metrics"] for result in json.loads(out)["results"]}
    for item in compare_replica_strategies(FOUR, 2):
        for key, value in item["metrics"].items():
            if key in ours[item["strategy"]] and key != "cached_token_fraction":
                assert ours[item["strategy"]][key] == value


def test_the_table_names_the_costs_the_policies_and_what_to_take(capsys, trace):
    code, out, _ = run(capsys, "compare", trace, "--replicas", 2)
    assert code == 0
    assert "prefill_ms_per_token 0.05" in out
    assert "locality_aware(slack_ms=5)" in out
    assert out.rpartition("\n\n")[2].startswith(("Take ", "No policy to prefer"))
    assert "\x1b" not in out


def test_csv_has_a_line_a_policy(capsys, trace):
    _, out, _ = run(capsys, "compare", trace, "--replicas", 2, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert len(rows) == 3
    assert {"policy", "p95_queue_wait_ms", "cache_hit_rate"} <= set(rows[0])


def test_output_is_written_by_its_suffix_and_the_table_is_still_printed(capsys, trace, tmp_path):
    target = tmp_path / "result.json"
    _, out, err = run(capsys, "compare", trace, "--replicas", 2, "--output", target)
    assert json.loads(target.read_text())["schema"] == "pointsman.compare/1"
    assert "queue_aware" in out
    assert f"wrote {target}" in err


@pytest.mark.parametrize("flag", ["--output", "--report", "--timeline"])
def test_a_file_that_takes_the_place_of_another_one_is_said_to(capsys, trace, tmp_path, flag):
    target = tmp_path / "result.json"
    command = ("compare", trace, "--replicas", 2, flag, target)
    _, _, first = run(capsys, *command)
    _, _, second = run(capsys, *command)
    assert f"wrote {target}" in first
    assert "(replaced)" not in first
    assert f"wrote {target} (replaced)" in second


def test_a_named_format_goes_to_the_file_alone(capsys, trace, tmp_path):
    target = tmp_path / "result.txt"
    command = ("compare", trace, "--replicas", 2, "--format", "csv", "--output", target)
    _, out, _ = run(capsys, *command)
    assert out == ""
    assert target.read_text().startswith("policy,")


def test_the_slack_and_chosen_policies_are_used(capsys, trace):
    command = ("compare", trace, "--replicas", 2, "--format", "json", "--slack-ms", 7.5)
    flags = ("--policy", "locality_aware", "--policy", "locality_aware:slack_ms=0")
    _, out, _ = run(capsys, *command, *flags)
    slacks = {result["parameters"]["slack_ms"] for result in json.loads(out)["results"]}
    assert slacks == {7.5, 0.0}


def test_a_users_policy_file_is_compared_like_ours(capsys, trace, tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from pointsman.policies.policy import policy\n"
        "@policy(rule='r', source='s', reasons=('first',), reads=())\n"
        "def first(request, view, parameters):\n"
        "    return 0, 0\n"
    )
    command = ("compare", trace, "--replicas", 2, "--format", "json", "--policy", f"{mine}:first")
    _, out, _ = run(capsys, *command)
    (result,) = json.loads(out)["results"]
    assert [replica["requests"] for replica in result["replicas"]] == [4, 0]


def test_estimate_then_decide_as_the_lesson_does(capsys, tmp_path):
    tokens = written(tmp_path / "tokens.jsonl", TOKENS)
    costs = tmp_path / "costs.json"
    costs.write_text(json.dumps(LESSON_COSTS))
    files = []
    for replicas in (1, 2):
        files.append(tmp_path / f"{replicas}.json")
        command = ("estimate", tokens, "--replicas", replicas, "--costs", costs)
        assert run(capsys, *command, "--format", "json", "--output", files[-1])[0] == 0
    summary = json.loads(files[1].read_text())["summary"]
    assert summary["makespan_ms"] == pytest.approx(2.62)
    assert summary["single_replica_time_ms"] == pytest.approx(3.93)
    limits = ("--max-imbalance-ratio", 0.8, "--max-comm-ratio", 0.05)
    _, out, _ = run(capsys, "decide", *files, *limits, "--format", "json")
    document = json.loads(out)
    assert list(document) == ["schema", "baseline", "candidate", "comparison", "decision"]
    assert document["decision"]["decision"] == "accept"
    assert document["candidate"]["tp_degree"] == 2
    assert document["comparison"]["imbalance_ratio"] == pytest.approx(2 / 3)


def test_a_rejection_fails_the_gate_and_only_the_gate(capsys, tmp_path):
    summary = {"single_replica_time_ms": 3.0, "makespan_ms": 4.0, "imbalance_ratio": 0.0}
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps({**summary, "comm_cost_ms": 0.0}))
    assert run(capsys, "decide", bare, bare)[0] == 0
    code, out, _ = run(capsys, "decide", bare, bare, "--gate")
    assert code == 3
    assert "reject: no gain" in out


def test_estimates_of_different_requests_are_not_compared(capsys, trace, tmp_path):
    other = written(tmp_path / "other.jsonl", TOKENS)
    for name, file in (("a.json", trace), ("b.json", other)):
        run(capsys, "estimate", file, "--replicas", 1, "--output", tmp_path / name)
    code, _, err = run(capsys, "decide", tmp_path / "a.json", tmp_path / "b.json")
    assert code == 2
    assert "expected two estimates of one workload" in err


@pytest.mark.parametrize("command", ["compare", "estimate"])
def test_a_result_says_how_the_trace_was_read(capsys, tmp_path, command):
    stepped = [
        {"timestamp": 3 * (i // 2), "input_length": 2, "output_length": 1, "hash_ids": [1]}
        for i in range(10)
    ]
    mooncake = written(tmp_path / "m.jsonl", stepped)
    flags = ("--spread-arrivals", "--seed", 4, "--time-unit", "s", "--block-size", 2, "--limit", 9)
    _, out, _ = run(capsys, command, mooncake, "--replicas", 1, *flags, "--format", "json")
    assert json.loads(out)["workload"]["options"] == {
        "limit": 9,
        "skip_bad": False,
        "block_size_tokens": 2,
        "time_unit": "s",
        "failed_requests": None,
        "spread_arrivals_seed": 4,
    }


def test_policies_are_listed_with_rule_and_source(capsys):
    _, out, _ = run(capsys, "policies", "--format", "json")
    rows = {row["name"]: row for row in json.loads(out)["policies"]}
    assert rows["locality_aware"]["parameters"] == {"slack_ms": 5.0}
    assert rows["power_of_two"]["source"].startswith("M. Mitzenmacher")
    assert rows["power_of_two"]["needs"] == ""
    assert rows["llmd_default"]["needs"] == "a fleet that batches"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("compare", "nowhere.jsonl", "--replicas", "2"), "nowhere.jsonl"),
        (("compare", "{trace}", "--replicas", "0"), "replicas is 0"),
        (("compare", "{trace}", "--replicas", "2", "--policy", "robin"), "policy 'robin'"),
        (("compare", "{trace}", "--replicas", "2", "--slack-ms", "-1"), "slack_ms is -1"),
        (("compare", "{trace}", "--replicas", "2", "--seed", "-1"), "seed is -1"),
        (("compare", "{trace}", "--replicas", "2", "--cache-hit-speedup", "2"), "is 2.0"),
        (
            ("compare", "{trace}", "--replicas", "2", "--policy", "random", "--policy", "random"),
            "each policy once",
        ),
        (("compare", "{trace}", "--replicas", "2", "--costs", "costs.yaml"), ".json or .toml"),
        (
            ("compare", "{trace}", "--replicas", "2", "--policy", "random", "--slack-ms", "5"),
            "--slack-ms is 5, and random does not take it; expected a policy",
        ),
        (("estimate", "{trace}", "--replicas", "2", "--slack-ms", "5"), "--slack-ms is 5"),
        (
            ("compare", "{trace}", "--replicas", "2", "--time-unit", "s"),
            "--time-unit s does not apply; expected a trace of bailian, mooncake",
        ),
        (("compare", "{trace}", "--replicas", "2", "--output", "no/such/x.json"), "cannot write"),
        (("decide", "{trace}", "{trace}"), "not JSON"),
        (("decide", "{trace}", "{trace}", "--max-comm-ratio", "nan"), "--max-comm-ratio is nan"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(capsys, trace, words, message):
    code, out, err = run(capsys, *(word.format(trace=trace) for word in words))
    assert code in (1, 2)
    assert out == ""
    assert message in err
    assert err.startswith("pointsman: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"prefil_ms_per_token": 1}', "did you mean prefill_ms_per_token?"),
        ('{"decode_ms_per_token": -1}', "decode_ms_per_token is -1"),
        ('{"decode_ms_per_token": true}', "decode_ms_per_token is True"),
        ('{"serving_mode": 3}', "serving_mode is 3"),
        ('{"serving_mode": "pd_disaggregated", "handoff_bytes_per_ms": 0}', "is 0"),
        ("[1]", "expected an object"),
        ("{", "not JSON"),
    ],
)
def test_a_bad_cost_file_is_refused(capsys, trace, tmp_path, text, message):
    costs = tmp_path / "costs.json"
    costs.write_text(text)
    code, _, err = run(capsys, "compare", trace, "--replicas", 2, "--costs", costs)
    assert code == 2
    assert message in err


def test_costs_are_read_from_toml(capsys, tmp_path):
    tokens = written(tmp_path / "tokens.jsonl", TOKENS)
    costs = tmp_path / "costs.toml"
    costs.write_text("prefill_ms_per_token = 0.5\ndecode_ms_per_token = 0\n")
    command = ("estimate", tokens, "--replicas", 1, "--costs", costs)
    _, out, _ = run(capsys, *command)
    assert json.loads(out)["ledger"]["prefill_ms"] == 96.0


FILES_READ = [
    ("compare", "{file}", "--replicas", "2"),
    ("compare", "{trace}", "--replicas", "2", "--costs", "{file}"),
    ("compare", "{trace}", "--replicas", "2", "--policy", "{file}.py:mine"),
    ("estimate", "{file}", "--replicas", "2"),
    ("decide", "{file}", "{file}"),
    ("trace", "info", "{file}"),
    ("trace", "convert", "{file}", "--output", "out.jsonl"),
    ("replay", "{file}"),
]


@pytest.mark.parametrize("words", FILES_READ, ids=lambda words: " ".join(words[:2]))
def test_a_file_that_does_not_exist_is_wrong_input(capsys, trace, tmp_path, words):
    command = [word.format(trace=trace, file=tmp_path / "none.json") for word in words]
    code, out, err = run(capsys, *command)
    assert (code, out) == (2, "")
    assert "none.json" in err
    assert "no such file" in err or "does not exist" in err


@pytest.mark.parametrize("words", FILES_READ, ids=lambda words: " ".join(words[:2]))
def test_a_folder_is_no_file(capsys, trace, tmp_path, words):
    for name in ("folder.json", "folder.json.py"):
        (tmp_path / name).mkdir()
    command = [word.format(trace=trace, file=tmp_path / "folder.json") for word in words]
    assert run(capsys, *command)[0] == 2


def test_a_second_value_of_a_flag_that_takes_one_is_said_to_want_the_flag_again(capsys):
    words = ("compare", "t", "--replicas", "2", "--policy", "random", "queue_aware")
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("pointsman: queue_aware: more than the command takes; where a flag")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("compare", "t", "--replica", "2"),
            "compare: unknown flag --replica; did you mean --replicas?; see pointsman compare",
        ),
        (
            ("compare", "t", "--replicas", "2", "--slack", "5"),
            "compare: unknown flag --slack; did you mean --slack-ms?; see pointsman compare",
        ),
        (
            ("trace", "info", "t", "--fromat=json"),
            "trace info: unknown flag --fromat; did you mean --format?; see pointsman trace info",
        ),
        (("policies", "--zzz"), "policies: unknown flag --zzz; see pointsman policies"),
        (
            ("compre", "t", "--replicas", "2"),
            "unknown command compre; did you mean compare?; see pointsman",
        ),
        (("zzz",), "unknown command zzz; see pointsman"),
        (
            ("trace", "inof", "t"),
            "trace: unknown action inof; did you mean info?; see pointsman trace",
        ),
        (
            ("compare", "t", "--replicas", "2", "--format", "jsn"),
            "compare: argument --format: 'jsn' is not one of table, json, csv; did you mean json?;"
            " see pointsman compare",
        ),
    ],
)
def test_an_unknown_word_is_one_line_with_the_nearest_one(capsys, words, message):
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    where = "" if message.startswith("unknown command") else " "
    assert capsys.readouterr().err == f"pointsman{where or ': '}{message} --help\n"


def test_help_lists_the_exit_codes(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    listed = re.findall(r"^  (\d+) +\S", out, flags=re.MULTILINE)
    assert listed == ["0", "1", "2", "3", "70", "130", "141", "143"]


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from parsers(child)


@pytest.mark.parametrize("parser", list(parsers(build_parser())), ids=lambda parser: parser.prog)
def test_every_command_and_flag_has_help_of_one_style(parser):
    texts = [action.help for action in parser._actions if action.dest not in ("command", "action")]
    assert all(text and not text.endswith(".") for text in texts)
    if parser.prog != "pointsman":
        assert parser.description[0].islower()
        assert not parser.description.endswith(".")


def test_what_a_user_has_to_give_is_named_in_capitals():
    for parser in parsers(build_parser()):
        for action in parser._get_positional_actions():
            assert action.metavar.isupper()


def test_every_format_can_be_named():
    from pointsman.workload.formats import FORMATS

    assert tuple(FORMATS) == FORMAT_NAMES


def test_usage_errors_exit_with_2(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["compare"])
    assert caught.value.code == 2


def test_help_imports_nothing_heavy():
    heavy = ("numpy", "numba", "rich", "msgspec", "uvloop")
    probe = (
        "import sys\n"
        "from pointsman.cli.main import build_parser\n"
        "build_parser().format_help()\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_version_is_the_installed_one():
    from importlib.metadata import version

    command = [sys.executable, "-m", "pointsman", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"pointsman {version('pointsman')}\n"


def test_a_reader_that_stops_reading_is_no_error(trace):
    command = f"{sys.executable} -m pointsman policies | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("told", "code", "said"),
    [(signal.SIGINT, 130, b"pointsman: interrupted\n"), (signal.SIGTERM, 143, b"")],
)
def test_an_interrupt_leaves_no_half_written_file(tmp_path, told, code, said):
    """A trace that never ends, on a pipe: the command is interrupted while it reads."""
    pipe, target = tmp_path / "pipe.jsonl", tmp_path / "out.json"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "pointsman", "compare", str(pipe), "--replicas", "2"]
    with interruptible():
        process = subprocess.Popen(
            [*command, "--output", str(target)], stderr=subprocess.PIPE, stdout=subprocess.PIPE
        )
    with pipe.open("wb") as feed:  # opens once the command reads
        feed.write(json.dumps(FOUR[0]).encode() + b"\n")
        feed.flush()
        process.send_signal(told)
        deadline = time.monotonic() + 30
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
    out, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert out == b""
    assert err == said
    assert [entry.name for entry in tmp_path.iterdir()] == ["pipe.jsonl"]


@pytest.mark.parametrize("redirection", ["> /dev/full", ">&-"])
def test_an_output_that_cannot_be_written_is_no_bug_of_ours(redirection):
    command = f"{sys.executable} -m pointsman policies {redirection}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1)
    assert "bug" not in done.stderr
    assert "Traceback" not in done.stderr


def test_infinite_limits_are_null_in_json(capsys, tmp_path):
    summary = {"single_replica_time_ms": 3.0, "makespan_ms": 2.0, "imbalance_ratio": 0.0}
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps({**summary, "comm_cost_ms": 0.0}))
    words = ("decide", bare, bare, "--max-comm-ratio", "inf", "--format", "json")
    code, out, _ = run(capsys, *words)
    checks = {check["name"]: check for check in json.loads(out)["decision"]["checks"]}
    assert code == 0
    assert checks["comm_ratio"]["limit"] is None


def test_costs_that_grow_beyond_any_number_are_refused(capsys, tmp_path):
    tokens = written(tmp_path / "tokens.jsonl", TOKENS)
    costs = tmp_path / "costs.json"
    costs.write_text('{"prefill_ms_per_token": 1e308}')
    code, out, err = run(capsys, "compare", tokens, "--replicas", 2, "--costs", costs)
    assert (code, out) == (2, "")
    assert "beyond any number" in err


def test_a_seed_beyond_64_bits_is_refused(capsys, trace):
    code, _, err = run(capsys, "compare", trace, "--replicas", 2, "--seed", 2**63)
    assert code == 2
    assert "seed is 9223372036854775808" in err


def test_a_name_that_is_no_text_is_shown_as_far_as_it_goes(capsys, tmp_path):
    name = os.path.join(os.fsencode(tmp_path), b"odd-\xff.jsonl")
    with open(name, "wb") as file:
        file.write("".join(json.dumps(row) + "\n" for row in FOUR).encode())
    words = ("compare", os.fsdecode(name), "--replicas", 2, "--format", "json")
    code, out, _ = run(capsys, *words)
    assert code == 0
    assert json.loads(out)["workload"]["source"].startswith("odd-")
