"""plan, as a user calls it."""

from __future__ import annotations

import csv
import io
import json

import pytest

from pointsman.cli.main import build_parser, main
from pointsman.cli.plan import KIND_NAMES
from pointsman.plan.question import LESSON_LIMITS
from pointsman.plan.shapes import KINDS
from pointsman.verdict.decide import Limits
from tests.compiling import without_compiling
from tests.fleet.cost_files import write_costs

# Two prompts of 4,000 tokens a second: too much for one L4, which is slow at prompts.
ROWS = [
    {"request_id": str(k), "arrival_ms": 500 * k, "prompt_tokens": 4000, "output_tokens": 20}
    for k in range(60)
]
HARDWARE = ("--model", "llama-3.1-8b", "--device", "l4")
ASKED = (*HARDWARE, "--gpus", "2", "--goodput", "ttft:3000", "tpot:200", "--jobs", "1")
ONE_POLICY = ("--policy", "round_robin")


@pytest.fixture
def trace(tmp_path) -> str:
    return written(tmp_path / "trace.jsonl", ROWS)


def written(path, rows) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def run(capsys, *words) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    captured = capsys.readouterr()
    return code, captured.out, without_compiling(captured.err)


def test_the_json_of_a_plan_has_the_documented_shape(capsys, trace):
    code, out, err = run(capsys, "plan", trace, *ASKED, *ONE_POLICY, "--format", "json")
    document = json.loads(out)
    assert (code, err) == (0, "")
    assert document["schema"] == "pointsman.plan/1"
    assert document["percentile_method"] == "nearest_rank"
    shapes = {shape["shape"]: shape for shape in document["shapes"]}
    labels = {"1xTP1", "2xTP1", "1xTP2", "1xTP1PP2", "1P1DxTP1"}
    assert document["baseline"]["shape"] == "1xTP1"
    assert shapes.keys() == labels - {"1xTP1"}
    assert set(document["ranking"]) == labels
    kinds = {shape["shape"]: shape["kind"] for shape in document["shapes"]}
    assert kinds == {
        "2xTP1": "replicas",
        "1xTP2": "tp_pp",
        "1xTP1PP2": "tp_pp",
        "1P1DxTP1": "disaggregated",
    }
    for shape in document["shapes"]:
        assert shape["decision"] in ("accept", "tune", "reject")
        assert shape["reason"]
        assert shape["next_action"]
        assert shape["policy"] == "round_robin"
        assert (
            shape["interval"]["low"] <= shape["interval"]["estimate"] <= shape["interval"]["high"]
        )
        low, high = shape["interval"]["low"], shape["interval"]["high"]
        told = "better" if high < 1 else "worse" if low > 1 else "not told apart"
        assert shape["interval"]["verdict"] == told
        assert shape["interval"]["goodput_difference"]["verdict"] == "not told apart"  # all keep it
        figures = {"makespan_ms", "throughput_req_per_ms", "imbalance_ratio", "comm_cost_ms"}
        figures |= {"handoff_total_ms", "handoff_total_bytes", "ttft_ms", "tpot_ms", "e2e_ms"}
        assert figures <= shape["metrics"].keys()
        assert shape["metrics"]["offered"] == len(ROWS)
    assert shapes["1P1DxTP1"]["metrics"]["handoff_total_bytes"] == 60 * 4000 * 131072
    assert shapes["1xTP2"]["metrics"]["comm_cost_ms"] > 0
    assert shapes["2xTP1"]["metrics"]["comm_cost_ms"] == 0
    counted = sum(shape["simulations"] for shape in (document["baseline"], *document["shapes"]))
    assert document["simulations"] == counted


def test_the_table_names_shapes_decisions_simulations_and_what_to_take(capsys, trace):
    code, out, _ = run(capsys, "plan", trace, *ASKED, *ONE_POLICY, "--top", 2)
    assert code == 0
    assert "taken to be off by up to 25.0%" in " ".join(out.split())
    assert "2 further shapes" in out  # the baseline is a row wherever it stands
    assert "5 shapes by" in out
    assert "baseline" in out
    assert out.rpartition("\n\n")[2].startswith(("Take ", "Keep ", "Nothing ", "No shape "))


def test_the_kinds_and_limits_of_the_command_are_those_of_the_plan():
    given = build_parser().parse_args(["plan", "t", *ASKED])
    assert KIND_NAMES == KINDS
    assert Limits(given.max_imbalance_ratio, given.max_comm_ratio) == LESSON_LIMITS


def test_csv_has_a_line_a_shape(capsys, trace):
    _, out, _ = run(capsys, "plan", trace, *ASKED, *ONE_POLICY, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert len(rows) == 5
    columns = {"shape", "policy", "decision", "makespan_ms", "p95_ttft_ms", "goodput_fraction"}
    assert columns <= rows[0].keys()


def test_a_plan_that_is_resumed_says_so_and_simulates_nothing(capsys, trace, tmp_path):
    command = ("plan", trace, *ASKED, *ONE_POLICY, "--resume", tmp_path / "results")
    run(capsys, *command)
    _, out, _ = run(capsys, *command)
    assert "5 shapes by 0 simulations, 5 shapes taken from the file" in out


def test_dropped_shapes_are_counted_in_the_document_and_named_in_the_table(capsys, trace):
    """7e9 weights of 3 bytes in the layers and 2.1 GB of tables are 21.5 GiB; 19.8 are usable."""
    command = ("plan", trace, *ASKED, *ONE_POLICY, "--bytes-per-weight", 3)
    _, out, _ = run(capsys, *command, "--format", "json")
    document = json.loads(out)
    assert document["dropped_shapes"] == 3  # one or two replicas, and the split of two
    assert document["baseline"]["shape"] in ("1xTP2", "1xTP1PP2")
    _, out, _ = run(capsys, *command)
    assert "dropped 3 of TP1: llama-3.1-8b on l4" in out


def test_traces_of_further_seeds_are_replications(capsys, trace, tmp_path):
    other = written(tmp_path / "other.jsonl", [{**row, "prompt_tokens": 4100} for row in ROWS])
    command = ("plan", trace, *ASKED, *ONE_POLICY, "--format", "json", "--replicate-with", other)
    _, out, _ = run(capsys, *command)
    document = json.loads(out)
    assert document["question"]["replications_of"] == "seeds"
    assert document["shapes"][0]["interval"]["n"] == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--goodput", "tftt:500"),
            "goodput 'tftt:500': objective 'tftt' is unknown; expected one",
        ),
        (("--goodput", "ttft"), "expected NAME:MILLISECONDS"),
        (("--gpus", "0"), "gpus is 0; expected an integer in 1..1024"),
        (("--model", "lama-3.1-8b"), "did you mean llama-3.1-8b?"),
        (("--device", "l44"), "did you mean l4?"),
        (("--model", "llama-3.1-405b"), "no shape of llama-3.1-405b on 2 l4 can be planned"),
        (("--baseline", "2TP1"), "shape is '2TP1'; expected a shape such as 4xTP2"),
        (("--baseline", "4xTP1"), "expected a shape of at most 2 GPUs"),
        (("--policy", "round_robbin"), "did you mean round_robin?"),
        (("--attainment", "95"), "attainment is 95.0"),
        (("--kv-block-size", "0"), "block_size is 0"),
        (("--model-error", "-0.1"), "model_error is -0.1"),
        (("--max-comm-ratio", "nan"), "max_comm_ratio is nan"),
        (("--replications", "1"), "replications is 1"),
        (("--replications", "1000000000"), "expected an integer in 2..100000"),
        (("--costs", "no.json", "--max-num-seqs", "8"), "--max-num-seqs does not go with --costs"),
        (("--jobs", "0"), "jobs is 0"),
        (("--top", "0"), "--top is 0"),
        (("--cluster", "10.0.0.1"), "cluster is '10.0.0.1'; expected ray://HOST:PORT"),
        (("--costs", "no.json"), "no.json: no such file"),
    ],
)
def test_bad_input_is_one_clear_error(capsys, trace, words, message):
    code, out, err = run(capsys, "plan", trace, *ASKED, *words)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_trace_without_tokens_is_refused(capsys, tmp_path):
    timed = [{"request_id": str(k), "arrival_ms": k, "service_ms": 5} for k in range(3)]
    code, _, err = run(capsys, "plan", written(tmp_path / "timed.jsonl", timed), *ASKED)
    assert code == 2
    assert "request 0 has no known number of prompt tokens" in err


def test_a_block_size_that_does_not_divide_is_refused(capsys, tmp_path):
    words = ("--block-size", "24", "--kv-block-size", "16")
    rows = [{**row, "block_ids": ["a"]} for row in ROWS[:3]]
    trace = written(tmp_path / "blocks.jsonl", rows)
    code, _, err = run(capsys, "plan", trace, *ASKED, *words)
    assert code == 2
    assert "block_size is 16; expected a divisor or a multiple of the trace's 24 tokens" in err


def test_without_ray_a_cluster_is_one_clear_error(capsys, trace, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    code, _, err = run(capsys, "plan", trace, *ASKED, "--cluster", "ray://local")
    assert code == 2
    assert "needs Ray, which is not installed; expected pip install 'pointsman[ray]'" in err


def test_costs_of_another_engine_version_are_warned_of_wherever_the_result_goes(
    capsys, trace, tmp_path
):
    costs = write_costs(tmp_path / "costs.json", engine={"kv_blocks": 2000})
    command = ("plan", trace, *ASKED, *ONE_POLICY, "--costs", costs, "--engine-version", "0.20.1")
    warning = "engine version is 0.20.1 and the costs were fitted to 0.19.0"
    _, out, err = run(capsys, *command)
    assert (out.count(warning), err) == (1, "")
    _, out, err = run(capsys, *command, "--format", "json")
    document = json.loads(out)
    assert document["warnings"] == [f"costs: {warning}"]
    assert document["hardware"]["recorded_engine_version"] == "0.19.0"
    assert err == f"warning: costs: {warning}\n"
