"""``pointsman policies bench``, as a user calls it, on traces that simulate in milliseconds."""

from __future__ import annotations

import csv
import io
import json

import pytest

from pointsman.cli.main import main
from pointsman.report.load_bench import CSV_HEADINGS
from tests.compiling import without_compiling

QUICK = ("policies", "bench", "--quick", "--traffic", "none", "--fleet", "2")
RULES = ("--policy", "fewest_misses", "--policy", "earliest_first_token")
PEER = ("--policy", "lmetric")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """300 requests in a minute, each 100 ms of prefill on a fast replica."""
    monkeypatch.chdir(tmp_path)
    rows = [
        {"arrival_ms": 200 * i + 37 * (i % 3), "prompt_tokens": 2000, "output_tokens": 5}
        for i in range(300)
    ]
    (tmp_path / "steady.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "short.jsonl").write_text(json.dumps(rows[0]) + "\n")
    return tmp_path


def run(capsys, *words) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    captured = capsys.readouterr()
    return code, captured.out, without_compiling(captured.err)


def benched(capsys, *words) -> dict:
    code, out, err = run(
        capsys, *QUICK, "--trace", "steady.jsonl", *RULES, *PEER, *words, "--format", "json"
    )
    assert (code, err) == (0, "")
    return json.loads(out)


def test_the_json_has_every_policy_of_every_cell_and_the_standings(capsys, folder):
    document = benched(capsys)
    assert document["schema"] == "pointsman.policies-bench/1"
    assert document["objectives"] == {"ttft_ms": 3000.0, "tpot_ms": 60.0, "e2el_ms": None}
    (cell,) = document["cells"]
    assert (cell["trace"], cell["fleet"], cell["replicas"]) == ("steady", "2", 2)
    assert cell["best_peer"] == "lmetric"
    found = {each["policy"]: each for each in cell["policies"]}
    assert {name: each["whose"] for name, each in found.items()} == {
        "fewest_misses": "ours",
        "earliest_first_token": "ours",
        "lmetric": "peer",
    }
    for each in found.values():
        assert each["at"]["goodput_fraction"] >= 0.95
        assert each["at"]["load_ratio"] == each["load_ratio"]
        assert each["requests_per_s"] == pytest.approx(each["load_ratio"] * cell["rate_rps"])
    (standing,) = document["standings"]
    ratio = found["fewest_misses"]["load_ratio"] / found["lmetric"]["load_ratio"]
    assert standing["load_ratio"] == pytest.approx(ratio)
    assert standing["worst_ttft_ratio"] > 0
    summary = document["summary"]
    assert summary["wins"] + summary["ties"] + summary["losses"] == 1


def test_two_replicas_of_ten_prefills_a_second_hold_some_four_times_five_a_second(capsys, folder):
    """A prompt takes 6 + 100 + 2 ms and its tokens further iterations; two replicas do less than
    20 a second, and no rule worth its name less than 12."""
    for each in benched(capsys)["cells"][0]["policies"]:
        assert 12 / 5 < each["load_ratio"] < 20 / 5


def test_a_trace_too_short_for_the_load_held_is_repeated(capsys, folder):
    """A minute at some 3.5 times its rate lasts 17 s; two minutes are wanted: eight rounds."""
    (cell,) = benched(capsys)["cells"]
    assert 6 <= cell["rounds"] <= 10
    assert cell["requests"] == 300 * cell["rounds"]
    assert all(each["at"]["simulated_ms"] >= 2 * 60_000 for each in cell["policies"])


def test_holding_is_reported_apart(capsys, folder):
    document = benched(capsys, "--hold-ms", 100)
    assert document["holding"]["order"] == "earliest_deadline"
    assert document["cells"][0]["with_holding"]["load_ratio"] > 0
    assert benched(capsys)["cells"][0]["with_holding"] is None


def test_objectives_are_told_to_the_policies_and_to_holding(capsys, folder):
    """At 100 ms no prompt of 108 ms is in time."""
    document = benched(capsys, "--goodput", "ttft:100", "--hold-ms", 50)
    assert document["holding"]["ttft_ms"] == 100.0
    for each in document["cells"][0]["policies"]:
        assert (each["load_ratio"], each["at"]) == (0.0, None)
    assert document["standings"][0]["verdict"] == "tie"
    assert document["standings"][0]["load_ratio"] is None


def test_csv_has_a_line_a_policy_and_cell(capsys, folder):
    words = ("--trace", "steady.jsonl", *RULES, *PEER, "--format", "csv")
    _, out, _ = run(capsys, *QUICK[:-1], "1,2", *words)
    rows = list(csv.DictReader(io.StringIO(out)))
    assert tuple(rows[0]) == CSV_HEADINGS
    assert [(row["fleet"], row["policy"]) for row in rows] == [
        (fleet, name)
        for fleet in "12"
        for name in ("fewest_misses", "earliest_first_token", "lmetric")
    ]
    assert [row["best_peer"] for row in rows] == ["False", "False", "True"] * 2


def test_the_table_marks_the_best_peer_and_says_how_it_was_obtained(capsys, folder):
    _, out, _ = run(capsys, *QUICK, "--trace", "steady.jsonl", *RULES, *PEER)
    (line,) = [line for line in out.splitlines() if line.startswith("lmetric")]
    assert line.endswith("*")
    assert "no engine was run" in out
    assert "simulated hours" in out
    assert "fewest_misses against the best peer of each cell: " in out


def test_a_fleet_that_holds_nothing_says_so(capsys, folder):
    _, out, _ = run(
        capsys, *QUICK, "--trace", "steady.jsonl", *RULES, *PEER, "--goodput", "ttft:100"
    )
    (line,) = [line for line in out.splitlines() if line.startswith("lmetric")]
    assert line.split() == ["lmetric", "none*"]


def test_without_a_peer_there_is_a_table_and_no_verdict(capsys, folder):
    code, out, _ = run(capsys, *QUICK, "--trace", "steady.jsonl", *RULES)
    assert code == 0
    assert "against the best peer" not in out
    assert "*" not in out.partition("2 replicas\n")[2]


def test_a_policy_of_your_own_stands_beside_the_others(capsys, folder):
    (folder / "mine.py").write_text(
        "from pointsman.policies.policy import policy\n"
        "@policy(rule='r', source='s', reasons=('r',), reads=())\n"
        "def alternating(request, view, parameters):\n"
        "    return request.sequence % view.shape[1], 0\n"
    )
    document = benched(capsys, "--policy", "mine.py:alternating", "--policy", "round_robin")
    found = {each["policy"]: each for each in document["cells"][0]["policies"]}
    assert found["mine.py:alternating"]["whose"] == "yours"
    assert found["mine.py:alternating"]["at"] == found["round_robin"]["at"]


def test_cells_in_several_processes_are_the_same(capsys, folder):
    words = (*QUICK[:-1], "1,2", "--trace", "steady.jsonl", *RULES, *PEER, "--format", "json")
    one, two = run(capsys, *words), run(capsys, *words, "--jobs", 2)
    assert one == two


def test_the_list_may_be_asked_for_its_format_before_the_word_bench(capsys, folder):
    words = ("--quick", "--traffic", "none", "--fleet", "2", "--trace", "steady.jsonl", *PEER)
    code, out, _ = run(capsys, "policies", "--format", "json", "bench", *words)
    assert code == 0
    assert json.loads(out)["schema"] == "pointsman.policies-bench/1"


def test_the_list_of_policies_is_what_it_was(capsys):
    code, out, _ = run(capsys, "policies", "--format", "json")
    assert code == 0
    assert json.loads(out)["schema"] == "pointsman.policies/1"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--fleet", "mixd"), "did you mean mixed?"),
        (("--traffic", "turn"), "did you mean turns?"),
        (("--policy", "lmetrik"), "did you mean lmetric?"),
        (("--policy", "lmetric", "--policy", "lmetric"), "expected each policy once"),
        (("--hold-order", "fcfs"), "--hold-order fcfs goes with --hold-ms"),
        (("--hold-ms", "-1"), "wait_ms is -1.0"),
        (("--goodput", "tfft:3"), "did you mean ttft?"),
        (("--jobs", "0"), "--jobs is 0"),
        (("--trace", "none.jsonl"), "no such file"),
        (("--trace", "steady.jsonl", "--trace", "steady.jsonl"), "two traces are called steady"),
        (("--traffic", "none"), "no traffic; expected"),
        (("--traffic", "none", "--trace", "short.jsonl"), "expected a longer trace"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(capsys, folder, words, message):
    code, out, err = run(capsys, "policies", "bench", "--quick", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_misspelt_flag_before_or_behind_the_word_is_named(capsys):
    for words in (("policies", "--fromat", "json", "bench"), ("policies", "bench", "--polcy", "x")):
        with pytest.raises(SystemExit) as caught:
            main(words)
        assert caught.value.code == 2
        assert "did you mean --" in capsys.readouterr().err
