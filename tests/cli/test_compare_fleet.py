"""``compare --fleet``, as a user calls it."""

from __future__ import annotations

import csv
import io
import json

import pytest

from pointsman.cli.compare import FLEET_POLICIES
from pointsman.cli.fleet_flags import HOLD_ORDERS
from pointsman.cli.main import main
from pointsman.fleet.objectives import with_objectives
from pointsman.metrics.goodput import Objectives
from pointsman.policies.policy import policy
from pointsman.sim.conditions import ORDERS
from tests.compiling import without_compiling
from tests.fleet.cost_files import write_costs

ROWS = [
    {"request_id": str(i), "arrival_ms": 20 * i, "prompt_tokens": 100, "output_tokens": 5}
    for i in range(12)
]
MODEL = ("--model", "llama-3.1-8b")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to work in, with a trace, one of service times, and a file of costs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "timed.jsonl").write_text('{"arrival_ms": 0, "service_ms": 5}\n')
    (tmp_path / "constants.json").write_text('{"prefill_ms_per_token": 0.1}')
    write_costs(tmp_path / "costs.json")
    return tmp_path


def run(capsys, *words) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    captured = capsys.readouterr()
    return code, captured.out, without_compiling(captured.err)


def compared(capsys, *words) -> dict:
    code, out, err = run(capsys, "compare", "trace.jsonl", *words, "--format", "json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_a_fleet_in_one_word_runs_a_handful_of_policies(capsys, folder):
    document = compared(capsys, "--fleet", "2xh100", *MODEL)
    assert document["schema"] == "pointsman.fleet-comparison/1"
    assert {result["policy"] for result in document["results"]} == set(FLEET_POLICIES)
    (group,) = document["fleet"]["groups"]
    assert (group["model"], group["device"], group["count"]) == ("llama-3.1-8b", "h100-sxm", 2)
    assert document["workload"]["requests"] == 12


def test_mixes_and_splits_are_run(capsys, folder):
    mixed = compared(capsys, "--fleet", "1xh100:tp=2+2xa100-80", *MODEL)
    assert mixed["fleet"]["gpus"] == 4
    split = compared(capsys, "--fleet", "1xh100:prefill+1xh100:decode", *MODEL)
    assert split["fleet"]["link"]["bytes_per_ms"] == 450e6
    assert set(split["results"][0]["skews"]) == {"prefill", "decode"}


def test_recorded_costs_need_no_device(capsys, folder):
    document = compared(capsys, "--fleet", "3", "--costs", "costs.json", "--kv-blocks", 50)
    (group,) = document["fleet"]["groups"]
    assert (group["count"], group["costs_from"]) == (3, "costs.json")
    assert group["engine"]["kv_blocks"] == 50


def test_costs_outside_their_range_are_warned_of_wherever_the_result_goes(capsys, folder):
    write_costs(folder / "narrow.json", limits={"prompt_tokens": 50})
    words = ("compare", "trace.jsonl", "--fleet", "3", "--costs", "narrow.json")
    warning = "narrow.json: prompt_tokens is 100 and the costs were fitted up to 50 tokens"
    _, out, err = run(capsys, *words)
    assert (out.count(warning), err) == (1, "")
    _, out, err = run(capsys, *words, "--format", "json")
    assert json.loads(out)["warnings"] == [warning]
    assert err == f"warning: {warning}\n"


def test_costs_of_another_engine_version_are_warned_of_wherever_the_result_goes(capsys, folder):
    words = ("compare", "trace.jsonl", "--fleet", "3", "--costs", "costs.json")
    warning = "costs.json: engine version is 0.20.1 and the costs were fitted to 0.19.0"
    _, out, err = run(capsys, *words, "--engine-version", "0.20.1")
    assert (out.count(warning), err) == (1, "")
    _, out, err = run(capsys, *words, "--engine-version", "0.20.1", "--format", "json")
    assert json.loads(out)["warnings"] == [warning]
    assert err == f"warning: {warning}\n"
    assert compared(capsys, *words[2:], "--engine-version", "0.19.0")["warnings"] == []


def test_a_file_says_which_engine_version_will_serve_and_the_flag_goes_before_it(capsys, folder):
    group = '[[replicas]]\ncount = 2\ncosts = "costs.json"\nengine_version = "0.20.1"\n'
    (folder / "fleet.toml").write_text(group)
    _, out, _ = run(capsys, "compare", "trace.jsonl", "--fleet", "fleet.toml")
    assert "engine version is 0.20.1" in out
    flag = ("--engine-version", "0.19.0")
    assert compared(capsys, "--fleet", "fleet.toml", *flag)["warnings"] == []


def test_several_routers_are_simulated_as_asked(capsys, folder):
    fleet = ("--fleet", "2", "--costs", "costs.json", "--policy", "least_requests")
    document = compared(capsys, *fleet, "--routers", 2, "--dealt", "session")
    assert document["fleet"]["conditions"]["routers"] == {"count": 2, "dealt": "session"}
    alone = compared(capsys, *fleet)
    assert alone["fleet"]["conditions"]["routers"] == {"count": 1, "dealt": "random"}


def test_every_flag_arrives_where_it_belongs(capsys, folder):
    document = compared(
        capsys,
        *("--fleet", "2", "--costs", "costs.json"),
        *("--metrics-age-ms", 100, "--event-delay-ms", 7),
        *("--hold-ms", 30, "--hold-order", "earliest_deadline"),
        *("--concurrency", 4, "--think-ms", 2),
        *("--max-num-seqs", 3, "--max-num-batched-tokens", 200, "--kv-block-size", 32),
        *("--goodput", "ttft:500", "tpot:60", "--policy", "random", "--seed", 9),
    )
    conditions = document["fleet"]["conditions"]
    assert conditions["signals"] == {"metrics_age_ms": 100, "event_delay_ms": 7}
    holding = conditions["holding"]
    assert (holding["wait_ms"], holding["order"], holding["ttft_ms"]) == (
        30,
        "earliest_deadline",
        500,
    )
    assert conditions["closed_loop"] == {"concurrency": 4, "think_ms": 2}
    engine = document["fleet"]["groups"][0]["engine"]
    limits = ("max_num_seqs", "max_num_batched_tokens", "block_size", "kv_blocks")
    assert [engine[name] for name in limits] == [3, 200, 32, 50]
    assert document["objectives"]["tpot_ms"] == 60
    assert document["fleet"]["seed"] == 9


@pytest.mark.parametrize(
    ("words", "by_priority", "p50_ms", "worst_ms"),
    [
        # one at a time, 20 ms each but the last of 40: at 1 and 2 ms they wait for the first
        ((), False, 40 - 1, 80 - 2),
        (("--scheduling-policy", "fcfs"), False, 40 - 1, 80 - 2),
        (("--scheduling-policy", "priority"), True, 60 - 2, 80 - 1),
    ],
)
def test_waiting_requests_go_by_priority_where_that_is_asked(
    capsys, folder, words, by_priority, p50_ms, worst_ms
):
    rows = [(0, 100, 0), (1, 100, 1), (2, 300, 0)]
    (folder / "trace.jsonl").write_text(
        "".join(
            f'{{"arrival_ms": {ms}, "prompt_tokens": {tokens}, "output_tokens": 1,'
            f' "priority": {priority}}}\n'
            for ms, tokens, priority in rows
        )
    )
    one = ("--fleet", "1", "--costs", "costs.json", "--max-num-seqs", 1, "--policy", "round_robin")
    document = compared(capsys, *one, *words)
    assert document["fleet"]["groups"][0]["engine"]["by_priority"] is by_priority
    ttft_ms = document["results"][0]["metrics"]["ttft_ms"]
    assert (ttft_ms["p50"], ttft_ms["worst"]) == (p50_ms, worst_ms)
    _, table, _ = run(capsys, "compare", "trace.jsonl", *one, *words)
    assert ("by priority" in table) is by_priority


def test_samples_over_time_are_there_where_they_are_asked_for(capsys, folder):
    words = ("--fleet", "2", "--costs", "costs.json", "--policy", "round_robin")
    assert compared(capsys, *words)["results"][0]["over_time"] is None
    over_time = compared(capsys, *words, "--over-time")["results"][0]["over_time"]
    assert over_time["step_ms"] == 1000
    names = ("running", "waiting", "kv_used_fraction")
    assert [tuple(each) for each in over_time["replicas"]] == [names] * 2
    _, table, _ = run(capsys, "compare", "trace.jsonl", *words, "--over-time")
    assert "round_robin over time, every 1 s: " in table


def test_a_file_describes_a_fleet_and_a_flag_goes_before_it(capsys, folder):
    (folder / "sub").mkdir()
    write_costs(folder / "sub" / "mine.json")
    (folder / "sub" / "fleet.toml").write_text(
        '[[replicas]]\ncount = 2\ncosts = "mine.json"\n[signals]\nmetrics_age_ms = 5\n'
    )
    document = compared(capsys, "--fleet", "sub/fleet.toml", "--metrics-age-ms", 8)
    assert document["fleet"]["groups"][0]["costs_from"] == "sub/mine.json"
    assert document["fleet"]["conditions"]["signals"]["metrics_age_ms"] == 8


def test_models_and_devices_of_ones_own_are_known(capsys, folder):
    (folder / "models.toml").write_text(
        "[mini]\nlayers = 2\nhidden = 256\nheads = 4\nkv_heads = 2\nhead_dim = 64\n"
        "intermediate = 512\nvocab = 1000\nmax_context_tokens = 4096\nsource = 'made up'\n"
    )
    (folder / "devices.toml").write_text(
        "[card]\nmemory_gib = 10\nbandwidth_gb_per_s = 100\nbf16_tflops = 10\nlink = 'none'\n"
        "link_gb_per_s = 1\nnetwork_gb_per_s = 1\ngpus_per_node = 1\nsource = 'made up'\n"
    )
    files = ("--models", "models.toml", "--devices", "devices.toml")
    document = compared(capsys, "--fleet", "2xcard", "--model", "mini", *files)
    assert document["fleet"]["groups"][0]["device"] == "card"
    slow = (folder / "devices.toml").read_text().replace("per_s = 100", "per_s = 0")
    (folder / "devices.toml").write_text(slow)
    code, _, err = run(
        capsys, "compare", "trace.jsonl", "--fleet", "2xcard", "--model", "mini", *files
    )
    assert code == 2
    assert "devices.toml: [card]: bandwidth_gb_per_s is 0; expected a finite number > 0" in err


def test_csv_and_the_table_are_of_the_same_comparison(capsys, folder):
    words = ("compare", "trace.jsonl", "--fleet", "2xh100", *MODEL)
    _, table, _ = run(capsys, *words)
    _, text, _ = run(capsys, *words, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["policy"].partition("(")[0] for row in rows] == [
        line.split()[0] for line in table.splitlines() if line.startswith(FLEET_POLICIES)
    ][: len(rows)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--fleet", "2xh100"), "model is missing; expected --model NAME"),
        (("--fleet", "0xh100", *MODEL), "count is 0; expected an integer >= 1"),
        (("--fleet", "2xh10", *MODEL), "device 'h10' is unknown"),
        (("--fleet", "2xh100", "--model", "llama-3.1-9b"), "did you mean llama-3.1-8b?"),
        (("--fleet", "2xl4", "--model", "llama-3.1-70b"), "GiB too few; tp="),
        (("--fleet", "2"), "neither a device nor a file of costs"),
        (("--fleet", "2xh100", "--costs", "costs.json"), "device does not go with costs"),
        (("--fleet", "2", "--costs", "costs.json", *MODEL), "every group has costs of its own"),
        (("--fleet", "2", "--costs", "none.json"), "pointsman: none.json: no such file"),
        (
            ("--fleet", "2xh100", *MODEL, "--engine-version", "0.19"),
            "--engine-version is '0.19', and no group has recorded costs",
        ),
        (("--replicas", "2", "--engine-version", "1"), "--engine-version goes with --fleet"),
        (("--fleet", "none.toml"), "none.toml: no such file"),
        (("--fleet", "trace.jsnl"), "trace.jsnl: no such file; did you mean trace.jsonl?"),
        (("--fleet", "sub/fleet"), "sub/fleet: no such file"),
        (("--fleet", "h100"), "'h100' is no group of replicas; expected such as 4xh100"),
        (("--replicas", "2", "--costs", "costs.json"), "or compare --fleet N --costs costs.json"),
        (
            ("--fleet", "2", "--costs", "constants.json"),
            "which go with --replicas",
        ),
        (("--fleet", "2xh100", *MODEL, "--kv-block-size", "0"), "block_size is 0"),
        (("--fleet", "2xh100", *MODEL, "--kv-blocks", "0"), "kv_blocks is 0"),
        (("--fleet", "2xh100", *MODEL, "--max-num-seqs", "0"), "max_num_seqs is 0"),
        (
            ("--fleet", "2xh100", *MODEL, "--scheduling-policy", "prioriti"),
            "scheduling_policy 'prioriti' is unknown; expected one of fcfs, priority; did you mean"
            " priority?",
        ),
        (("--replicas", "2", "--scheduling-policy", "fcfs"), "--scheduling-policy goes with"),
        (("--fleet", "2xh100", *MODEL, "--metrics-age-ms", "nan"), "metrics_age_ms is nan"),
        (("--fleet", "2xh100", *MODEL, "--hold-order", "fcfs"), "or --hold-ms"),
        (("--fleet", "2xh100", *MODEL, "--think-ms", "1"), "or --concurrency"),
        (("--fleet", "2xh100", *MODEL, "--concurrency", "0"), "concurrency is 0"),
        (("--fleet", "2xh100", *MODEL, "--dealt", "session"), "or --routers"),
        (("--fleet", "2xh100", *MODEL, "--routers", "0"), "routers: count is 0"),
        (
            ("--fleet", "2xh100", *MODEL, "--routers", "2", "--hold-ms", "9"),
            "2 routers are to hold requests; expected one router, or nothing held",
        ),
        (("--replicas", "2", "--routers", "2"), "--routers goes with --fleet"),
        (("--fleet", "2xh100", *MODEL, "--goodput", "tfft:9"), "did you mean ttft?"),
        (("--fleet", "2xh100", *MODEL, "--goodput", "ttft"), "expected NAME:MILLISECONDS"),
        (("--fleet", "2xh100", *MODEL, "--baseline", "x"), "baseline 'x' is unknown"),
        (("--fleet", "2xh100", *MODEL, "--policy", "robin"), "policy 'robin' is unknown"),
        (("--fleet", "2xh100", *MODEL, "--seed", "-1"), "seed is -1"),
        (
            ("--fleet", "2xh100", *MODEL, "--max-num-seqs", "9" * 20),
            "expected an integer >= 1, at most 2147483647",
        ),
        (
            ("--fleet", "2xh100", *MODEL, "--kv-block-size", "99999999"),
            "block_size is 99999999; expected at most",
        ),
        (
            ("--fleet", "2xh100", *MODEL, "--cache-hit-speedup", "0.5"),
            "--cache-hit-speedup goes with --replicas",
        ),
        (("--replicas", "2", "--over-time"), "--over-time goes with --fleet"),
        (("--fleet", "2xh100", *MODEL, "--over-time", "--format", "csv"), "does not go with csv"),
        (("--fleet", "2xh100", *MODEL, "--over-time", "--output", "a.csv"), "does not go with csv"),
        (("--replicas", "2", "--goodput", "ttft:9"), "--goodput goes with --fleet"),
        (("--replicas", "2", "--kv-block-size", "9"), "--kv-block-size goes with --fleet"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(capsys, folder, words, message):
    code, out, err = run(capsys, "compare", "trace.jsonl", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("pointsman: ")
    assert err.count("\n") == 1


def test_a_trace_without_tokens_is_refused(capsys, folder):
    code, out, err = run(capsys, "compare", "timed.jsonl", "--fleet", "2xh100", *MODEL)
    assert (code, out) == (2, "")
    assert "timed.jsonl line 1: prompt_tokens is missing, output_tokens is missing" in err


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"pointsman": 1, "block_size_tokens": 16}\n{A}\n\n{B}\n{C}\n', "odd.jsonl line 5"),
        ("{A}\n{B}\n{B}\n{C}\n", "odd.jsonl line 4"),
        ("{B}\n{A}\n{C}\n", "odd.jsonl: workload row 2"),  # sorted: lines are not kept
    ],
)
def test_a_request_without_an_answer_is_named_by_its_line(capsys, folder, text, place):
    rows = {"A": (0, 5), "B": (1, 5), "C": (2, 0)}
    for name, (ms, output) in rows.items():
        row = f'{{"arrival_ms": {ms}, "prompt_tokens": 9, "output_tokens": {output}}}'
        text = text.replace(f"{{{name}}}", row)
    (folder / "odd.jsonl").write_text(text)
    code, _, err = run(capsys, "compare", "odd.jsonl", "--fleet", "2xh100", *MODEL)
    assert (code, f"{place}: prompt_tokens is 9, output_tokens is 0" in err) == (2, True)


@pytest.mark.parametrize("words", [(), ("--replicas", "2", "--fleet", "2xh100")])
def test_one_of_the_two_kinds_of_fleet_is_needed(capsys, folder, words):
    with pytest.raises(SystemExit) as caught:
        main(["compare", "trace.jsonl", *words])
    assert caught.value.code == 2
    assert "--fleet" in capsys.readouterr().err


def test_the_orders_of_the_flag_are_those_of_the_simulator():
    assert set(HOLD_ORDERS) == set(ORDERS)


@policy(rule="r", source="s", reasons=("x",), parameters={"ttft_ms": 1.0, "tpot_ms": 2.0}, reads=())
def for_objectives(request, view, parameters):
    return 0, 0


@pytest.mark.parametrize(
    ("text", "objectives", "expected"),
    [
        ("m.py:for_objectives", Objectives(500, 60), {"ttft_ms": 500, "tpot_ms": 60}),
        ("m.py:for_objectives", Objectives(ttft_ms=500), {"ttft_ms": 500, "tpot_ms": 2}),
        ("m.py:for_objectives:ttft_ms=1", Objectives(500, 60), {"ttft_ms": 1, "tpot_ms": 60}),
        ("m.py:for_objectives", None, {"ttft_ms": 1, "tpot_ms": 2}),
    ],
)
def test_a_policy_gets_the_objectives_unless_it_was_told_others(text, objectives, expected):
    (bound,) = with_objectives([text], [for_objectives], objectives)
    assert dict(bound.parameters) == expected
