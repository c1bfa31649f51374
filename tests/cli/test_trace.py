from __future__ import annotations

import csv
import json

import pytest

from pointsman.cli.main import main
from pointsman.policies.policy import LOGGED_ROWS
from pointsman.workload.formats import read_workload

ROWS = (
    '{"request_id": "b", "arrival_ms": 2000, "prompt_tokens": 30, "output_tokens": 4}\n'
    '{"request_id": "a", "arrival_ms": 0, "prompt_tokens": 10, "output_tokens": 2}\n'
)
BAD = '{"request_id": "c", "arrival_ms": -1, "service_ms": 1}\n'


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(ROWS)
    return path


def test_info_prints_json_and_nothing_else(trace, capsys):
    assert main(["trace", "info", str(trace), "--format", "json"]) == 0
    statistics = json.loads(capsys.readouterr().out)
    assert statistics["schema"] == "pointsman.trace/1"
    assert statistics["requests"] == 2
    assert statistics["out_of_order_rows"] == 1
    assert statistics["mean_rate_rps"] == 0.5
    assert statistics["prompt_tokens"]["mean"] == 20


def test_info_prints_a_table_without_colour_when_piped(trace, capsys):
    assert main(["trace", "info", str(trace)]) == 0
    text = capsys.readouterr().out
    assert "requests           2\n" in text
    assert "rows out of order  1 (sorted)\n" in text
    assert "\x1b" not in text


def test_info_writes_a_file_and_still_prints_the_table(trace, tmp_path, capsys):
    assert main(["trace", "info", str(trace), "--output", str(tmp_path / "i.json")]) == 0
    assert "rows out of order  1 (sorted)\n" in capsys.readouterr().out
    assert json.loads((tmp_path / "i.json").read_text())["requests"] == 2


def test_info_as_csv_has_a_line_a_figure(trace, capsys):
    assert main(["trace", "info", str(trace), "--format", "csv"]) == 0
    rows = dict(csv.reader(capsys.readouterr().out.splitlines()))
    assert (rows["name"], rows["requests"], rows["prompt_tokens.mean"]) == ("value", "2", "20.0")


def test_info_says_how_the_trace_was_read(trace, capsys):
    command = ["trace", "info", str(trace), "--limit", "1", "--skip-bad", "--format", "json"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["options"] == {
        "limit": 1,
        "skip_bad": True,
        "block_size_tokens": None,
        "time_unit": None,
        "failed_requests": None,
        "spread_arrivals_seed": None,
    }


def test_failed_requests_that_are_left_out_are_reported(tmp_path, capsys):
    burst = tmp_path / "b.csv"
    burst.write_text(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,10,3,13,Conversation log\n"
        "9,ChatGPT,10,0,10,Conversation log\n"
    )
    assert main(["trace", "info", str(burst), "--failed-requests", "omit"]) == 0
    captured = capsys.readouterr()
    assert "failed requests left out  1\n" in captured.out
    assert captured.err == "1 failed requests left out\n"


def test_a_bad_line_stops_with_the_input_exit_code(trace, capsys):
    trace.write_text(ROWS + BAD)
    assert main(["trace", "info", str(trace)]) == 2
    assert f"{trace} line 3: arrival_ms is -1; expected" in capsys.readouterr().err


def test_bad_lines_that_are_left_out_are_reported(trace, tmp_path, capsys):
    trace.write_text(ROWS + BAD)
    out = str(tmp_path / "o.jsonl")
    assert main(["trace", "convert", str(trace), "--skip-bad", "--output", out]) == 0
    errors = capsys.readouterr().err
    assert "1 bad lines left out" in errors
    assert "wrote 2 requests" in errors


def test_a_conversion_that_replaces_a_file_says_so(trace, tmp_path, capsys):
    out = tmp_path / "o.jsonl"
    for said in (f"wrote 2 requests to {out};", f"wrote 2 requests to {out} (replaced);"):
        assert main(["trace", "convert", str(trace), "--output", str(out)]) == 0
        assert said in capsys.readouterr().err


def test_convert_scales_the_rate_and_compresses_by_the_suffix(trace, tmp_path):
    out = tmp_path / "o.jsonl.zst"
    arguments = ["trace", "convert", str(trace), "--rate-scale", "4", "--output", str(out)]
    assert main(arguments) == 0
    assert read_workload(out).arrival_ms.tolist() == [0.0, 500.0]


def test_convert_takes_the_first_rows(trace, tmp_path):
    out = tmp_path / "o.jsonl"
    assert main(["trace", "convert", str(trace), "--limit", "1", "--output", str(out)]) == 0
    assert read_workload(out).names.requests == ("b",)


def test_convert_spreads_stepped_arrivals_from_a_seed(tmp_path):
    stepped = tmp_path / "m.jsonl"
    row = '{"timestamp": %d, "input_length": 5, "output_length": 1}\n'
    stepped.write_text("".join(row % (3000 * (i // 2)) for i in range(10)))
    arguments = ["trace", "convert", str(stepped), "--spread-arrivals", "--seed"]
    outs = [tmp_path / f"{i}.jsonl" for i in range(3)]
    for seed, out in zip(("1", "1", "2"), outs, strict=True):
        assert main([*arguments, seed, "--output", str(out)]) == 0
    same, again, other = (out.read_bytes() for out in outs)
    assert same == again != other
    assert len(set(read_workload(outs[0]).arrival_ms)) == 10


@pytest.fixture
def decision_log(tmp_path):
    head = {
        "event": "log",
        "schema": "pointsman.decision-log",
        "version": 2,
        "pointsman": "0",
        "started_at": "2025-01-01T00:00:00.000+00:00",
        "policy": "queue_aware",
        "parameters": {},
        "reads": [],
        "signals": [],
        "replicas": ["http://127.0.0.1:1"],
        "seed": 0,
        "block_tokens": 64,
        "facts": [{}],
    }
    choice = {
        "event": "choice",
        "sequence": 0,
        "time_ms": 1.5,
        "request_id": "r0",
        "path": "/v1/completions",
        "prompt_tokens": 70,
        "output_tokens": 16,
        "block_hashes": ["000000000000000b"],
        "session": None,
        "home": None,
        "random": 0.25,
        "key": 0,
        "priced_tokens": 70,
        "shows_first_token": True,
        "candidates": [0],
        "seen": [],
        "hits": {},
        "view": {name: [] for name in LOGGED_ROWS},
        "replica": 0,
        "reason": "shortest_queue",
        "expected_wait_ms": 0.0,
        "expected_work_ms": 4.3,
    }
    path = tmp_path / "log.jsonl"
    path.write_text(f"{json.dumps(head)}\n{json.dumps(choice)}\n")
    return path


def test_convert_makes_a_workload_of_a_decision_log(decision_log, tmp_path):
    out = tmp_path / "o.jsonl"
    assert main(["trace", "convert", str(decision_log), "--output", str(out)]) == 0
    workload = read_workload(out)
    assert workload.names.requests == ("r0",)
    assert workload.prompt_tokens.tolist() == [70]


def test_flags_for_reading_a_trace_do_not_apply_to_a_decision_log(decision_log, tmp_path, capsys):
    arguments = ["trace", "convert", str(decision_log), "--limit", "1"]
    assert main([*arguments, "--output", str(tmp_path / "o.jsonl")]) == 2
    assert "a decision log; expected none of the flags" in capsys.readouterr().err


def test_info_refuses_a_decision_log_with_the_way_to_use_it(decision_log, capsys):
    assert main(["trace", "info", str(decision_log)]) == 2
    assert "`pointsman trace convert` makes one of it" in capsys.readouterr().err


def test_generate_writes_what_its_flags_say(tmp_path, capsys):
    out = tmp_path / "g.jsonl.gz"
    flags = (
        "--requests 40 --seed 2 --rate-rps 5 --burstiness 0.5 --prompt-tokens 50"
        " --output-tokens uniform:min=1,max=9 --turns geometric:mean=3 --think-time-ms 1000"
        " --system-prompts 2 --system-prompt-tokens 32 --zipf-exponent 1.2 --block-size 16"
        " --max-prompt-tokens 300"
    )
    assert main(["trace", "generate", *flags.split(), "--output", str(out)]) == 0
    workload = read_workload(out)
    assert len(workload) == 40
    assert workload.prompt_tokens.min() == 82
    assert capsys.readouterr().out == ""


def test_generate_draws_arrivals_and_lengths_from_a_trace(trace, tmp_path):
    out = tmp_path / "g.jsonl"
    flags = ["--requests", "2", "--arrivals-of", str(trace), "--lengths-of", str(trace)]
    assert main(["trace", "generate", *flags, "--output", str(out)]) == 0
    workload = read_workload(out)
    assert workload.arrival_ms.tolist() == [0.0, 2000.0]
    assert set(workload.prompt_tokens) <= {10, 30}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--prompt-tokens 1 --output-tokens 1", "expected --rate-rps or --arrivals-of"),
        ("--rate-rps 0 --prompt-tokens 1 --output-tokens 1", "rate_rps is 0.0; expected a number"),
        ("--rate-rps 1 --output-tokens 1", "--prompt-tokens is missing; expected a number or KIND"),
        (
            "--rate-rps 1 --constant-rate --burstiness 2 --prompt-tokens 1 --output-tokens 1",
            "--burstiness goes with --rate-rps alone",
        ),
        (
            "--rate-rps 1 --prompt-tokens 1 --output-tokens 1 --turns 2",
            "--think-time-ms is missing",
        ),
        (
            "--rate-rps 1 --prompt-tokens 1 --output-tokens 1 --system-prompts 2",
            "--system-prompt-tokens is missing",
        ),
    ],
)
def test_generate_refuses_flags_that_do_not_fit_together(tmp_path, capsys, flags, message):
    out = tmp_path / "g.jsonl"
    arguments = ["trace", "generate", "--requests", "3", *flags.split(), "--output", str(out)]
    assert main(arguments) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()
