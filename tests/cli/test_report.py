"""``--report`` and ``pointsman report``, as a user calls them."""

from __future__ import annotations

import json
import re

import pytest

from pointsman.cli.main import main
from pointsman.report.html.sources.documents import result_of
from pointsman.report.html.views.efficiency import FRONT, efficiency
from tests.fleet.cost_files import write_costs
from tests.replay.test_replay import logged

ROWS = [
    {
        "request_id": str(k),
        "arrival_ms": 37 * k,
        "prompt_tokens": 120 + 20 * (k % 5),
        "output_tokens": 4 + k % 9,
        "session_id": f"s{k % 6}",
    }
    for k in range(60)
]
FLEET = ("--fleet", "2", "--costs", "costs.json", "--goodput", "ttft:150", "tpot:40")
POLICIES = ("--policy", "round_robin", "--policy", "locality_aware")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to work in, with a trace and a file of costs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    write_costs(tmp_path / "costs.json")
    return tmp_path


def run(capsys, *words) -> tuple[int, str]:
    code = main([str(word) for word in words])
    return code, capsys.readouterr().err


def reported(capsys, folder, *words) -> tuple[dict, str]:
    """The JSON and the page of one command."""
    code, err = run(capsys, *words, "--output", "out.json", "--report", "page.html")
    assert code == 0, err
    page = (folder / "page.html").read_text()
    return json.loads((folder / "out.json").read_text()), page


def values_on(page: str) -> set[str]:
    """Every figure of the answers' tables, with every digit."""
    return set(re.findall(r'<data value="([^"]*)">', page))


def test_a_comparison_has_a_page_with_the_figures_of_its_json(capsys, folder):
    document, page = reported(capsys, folder, "compare", "trace.jsonl", "--replicas", "2")
    wanted = {json.dumps(each["metrics"]["p99_latency_ms"]) for each in document["results"]}
    assert wanted <= values_on(page)
    assert f"<h1>Comparison of policies: {document['workload']['source']}</h1>" in page


def test_a_fleet_has_a_page_with_samples_and_intervals(capsys, folder):
    document, page = reported(capsys, folder, "compare", "trace.jsonl", *FLEET, *POLICIES)
    first = document["results"][0]
    own = first["intervals"]["goodput_fraction"]
    assert own["estimate"] == first["metrics"]["goodput"]["fraction"]
    assert own["low"] <= own["estimate"] <= own["high"]
    assert first["over_time"] is not None
    assert "How full is each replica over time?" in page
    assert json.dumps(first["metrics"]["ttft_ms"]["p99"]) in values_on(page)


def test_without_a_page_a_fleet_is_neither_sampled_nor_resampled(capsys, folder):
    code, _ = run(capsys, "compare", "trace.jsonl", *FLEET, *POLICIES, "--output", "out.json")
    first = json.loads((folder / "out.json").read_text())["results"][0]
    assert (code, first["over_time"], first["intervals"]) == (0, None, {})
    assert len(first["quantiles"]["tpot_ms"]) == 110


def test_prefill_and_decode_apart_show_what_handing_over_takes(capsys, folder):
    split = ("--fleet", "1xh100:prefill+1xh100:decode", "--model", "llama-3.1-8b")
    document, page = reported(capsys, folder, "compare", "trace.jsonl", *split, *POLICIES)
    first = document["results"][0]
    assert (
        first["quantiles"]["handoff_ms"][-1] == first["metrics"]["handoff"]["transfer_ms"]["worst"]
    )
    assert "What does handing caches from prefill to decode cost?" in page


def test_a_plans_page_has_the_front_of_its_json(capsys, folder):
    words = ("--model", "llama-3.1-8b", "--device", "l4", "--gpus", "2", "--jobs", "1")
    asked = (*words, "--goodput", "ttft:3000", "tpot:200", "--policy", "round_robin")
    document, page = reported(capsys, folder, "plan", "trace.jsonl", *asked)
    view = efficiency(result_of(document, "plan").runs)
    e2e = view.charts[-1]
    (front,) = (each for each in e2e.series if each.name == FRONT)
    assert {point.label for point in front.points} == set(document["pareto"])
    assert document["advice"]["sentence"].split(":")[0] in page


def test_a_load_bench_has_the_curve_of_its_search(capsys, folder):
    rows = [
        {"arrival_ms": 200 * k + 37 * (k % 3), "prompt_tokens": 2000, "output_tokens": 5}
        for k in range(300)
    ]
    (folder / "steady.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("--quick", "--traffic", "none", "--fleet", "2", "--trace", "steady.jsonl")
    document, page = reported(
        capsys, folder, "policies", "bench", *words, "--policy", "fewest_misses"
    )
    (held,) = document["cells"][0]["policies"]
    loads = [at["load_ratio"] for at in held["tried"]]
    assert loads == sorted(loads)
    assert held["load_ratio"] in loads
    assert "What do goodput and tails do as load grows?" in page


def test_a_replay_has_a_page(capsys, folder):
    path = logged(folder / "log.jsonl")
    document, page = reported(capsys, folder, "replay", path, "--policy", "round_robin")
    assert f"{document['agreeing']} of {document['choices']} choices" in page


def test_a_file_of_a_result_gives_the_same_charts_as_its_command(capsys, folder):
    _, page = reported(capsys, folder, "compare", "trace.jsonl", *FLEET, *POLICIES)
    assert run(capsys, "report", "out.json", "--output", "again.html")[0] == 0
    again = (folder / "again.html").read_text()
    after = "<nav"
    assert again[again.index(after) :] == page[page.index(after) :]


def test_results_of_several_rates_are_a_curve_over_load(capsys, folder):
    for number, rate in enumerate((1, 3)):
        main(["trace", "convert", "trace.jsonl", "--rate-scale", str(rate), "--output", "r.jsonl"])
        words = ("compare", "r.jsonl", *FLEET, *POLICIES, "--output", f"r{number}.json")
        assert run(capsys, *words)[0] == 0
    assert run(capsys, "report", "r0.json", "r1.json")[0] == 0
    page = (folder / "report.html").read_text()
    assert "What do goodput and tails do as load grows?" in page
    assert "round_robin (r1)" in page


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("report", "none.json"), "none.json: no such file"),
        (("report", "trace.jsonl"), "expected JSON that compare, plan, policies bench, replay or"),
        (("report", "costs.json"), "costs.json: schema 'pointsman.costs/1' is unknown"),
        (("report", "."), "no evidence; expected"),
        (("report", "costs.json", "--output", "no/where.html"), "cannot write"),
        (("compare", "trace.jsonl", "--replicas", "2", "--report", "no/p.html"), "cannot write"),
    ],
)
def test_what_cannot_be_is_one_clear_error(capsys, folder, words, message):
    code, err = run(capsys, *words)
    assert code in (1, 2)
    assert message in err
    assert "Traceback" not in err
    assert not list(folder.glob("*.html"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--report", "x", "--output", "./x"), "--report is x, and so is --output"),
        (("--report", "x", "--timeline", "x"), "--timeline is x, and so is --report"),
        (("--report", "trace.jsonl"), "--report is trace.jsonl, and the command reads it"),
        (("--output", "trace.jsonl"), "--output is trace.jsonl, and the command reads it"),
    ],
)
def test_a_file_is_neither_written_twice_nor_over_what_is_read(capsys, folder, words, message):
    before = (folder / "trace.jsonl").read_bytes()
    code, err = run(capsys, "compare", "trace.jsonl", "--replicas", "2", *words)
    assert (code, err) == (2, f"pointsman: {message}; expected a file of its own\n")
    assert not (folder / "x").exists()
    assert (folder / "trace.jsonl").read_bytes() == before


def test_a_page_does_not_take_the_place_of_a_result(capsys, folder):
    run(capsys, "compare", "trace.jsonl", "--replicas", "2", "--output", "out.json")
    code, err = run(capsys, "report", "out.json", "--output", "out.json")
    assert (code, "the command reads it" in err) == (2, True)
    assert json.loads((folder / "out.json").read_text())["results"]


def test_a_device_takes_any_number_of_results(capsys, folder):
    to_nowhere = ("--output", "/dev/null", "--report", "/dev/null")
    assert run(capsys, "compare", "trace.jsonl", "--replicas", "2", *to_nowhere)[0] == 0


@pytest.mark.parametrize("text", ["", '{"schema":', "[]", "\x1f\x8b"])
def test_what_is_no_json_is_refused_with_what_a_page_is_made_of(capsys, folder, text):
    (folder / "other.json").write_text(text)
    code, err = run(capsys, "report", "other.json")
    assert code == 2
    assert err.startswith("pointsman: other.json: ")
    assert "expected JSON that compare, plan, policies bench, replay or calibrate wrote" in err


CHANGES = """
[[replicas]]
count = 2
costs = "costs.json"

[[changes]]
time_ms = 500
replica = 1
event = "slows"
factor = 3
"""


def test_a_page_says_what_surrounded_the_fleet(capsys, folder):
    (folder / "fleet.toml").write_text(CHANGES)
    rules = ("--policy", "round_robin")
    _, page = reported(capsys, folder, "compare", "trace.jsonl", "--fleet", "fleet.toml", *rules)
    assert "<dt>Conditions</dt><dd>replica 1 slows by 3 at 500 ms</dd>" in page


def test_the_baseline_of_two_slacks_is_named_with_its_own(capsys, folder):
    slacks = [("--policy", f"locality_aware:slack_ms={ms}") for ms in (5, 500)]
    words = ("compare", "trace.jsonl", *FLEET, *slacks[0], *slacks[1])
    document, page = reported(capsys, folder, *words)
    assert f"less that of {document['baseline']}<" in page
