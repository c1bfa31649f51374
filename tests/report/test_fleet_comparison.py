"""A comparison on a fleet as tables, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest

from pointsman import POLICIES, workload_of_columns
from pointsman.comparison.fleets import Trial, compare_on_fleet
from pointsman.costs.calibrated import read_calibrated
from pointsman.fleet.description import FleetDescription, Link
from pointsman.fleet.groups import Group, Recorded
from pointsman.metrics.goodput import Objectives
from pointsman.report.fleet_comparison import fleet_comparison_text
from pointsman.sim.conditions import Change, ClosedLoop, Conditions, Holding
from pointsman.sim.knowledge import Signals
from pointsman.sim.routers import Routers
from pointsman.workload.reading import ReadOptions
from tests.fleet.cost_files import write_costs

FOUR = workload_of_columns([0.0] * 4, prompt_tokens=[100] * 4, output_tokens=[1] * 4)
NAMES = ("round_robin", "queue_aware", "locality_aware")


@pytest.fixture
def group(tmp_path) -> Group:
    path = write_costs(tmp_path / "costs.json", limits={"prompt_tokens": 50})
    return Group(count=2, hardware=Recorded("costs.json", read_calibrated(path)))


def text_of(description: FleetDescription, form: str, trial: Trial | None = None) -> str:
    policies = [POLICIES[name] for name in NAMES]
    trial = trial or Trial(objectives=Objectives(ttft_ms=40.0))
    return fleet_comparison_text(
        compare_on_fleet(FOUR, policies, description, trial), ReadOptions(), form
    )


def test_the_tables_name_fleet_objectives_warnings_and_advice(group):
    text = text_of(FleetDescription(groups=(group,)), "table")
    assert "4 requests over 0 s (columns) on 2 replicas that batch, 2 GPUs" in text
    assert "2 x tiny as calibrated in costs.json: 100 KV blocks of 16 tokens" in text
    assert "objectives: ttft 40 ms" in text
    assert "parameters: locality_aware(slack_ms=5)\n" in text
    assert (
        "Warning: costs.json: prompt_tokens is 100 and the costs were fitted up to 50 tokens.\n"
        in text
    )
    assert text.rpartition("\n\n")[2].startswith(("Take ", "Nothing on this workload tells "))


def test_the_tables_fit_120_columns_and_the_prose_100(group):
    text = text_of(FleetDescription(groups=(group,)), "table")
    assert max(map(len, text.splitlines())) <= 120
    assert max(map(len, text.rpartition("\n\n")[2].splitlines())) <= 100


def test_what_surrounds_the_fleet_is_said(group):
    conditions = Conditions(
        signals=Signals(1000.0, 20.0),
        holding=Holding(100.0),
        closed_loop=ClosedLoop(2, 5.0),
        changes=(Change(9000.0, 1, "slows", 2.0),),
    )
    split = FleetDescription(
        groups=(replace(group, role="prefill"), replace(group, role="decode")),
        link=Link(gb_per_s=10, kv_bytes_per_token=1000, base_ms=3),
        conditions=conditions,
    )
    text = text_of(split, "table")
    for line in (
        "hand-off: 1,000 bytes a token at 10 GB/s, shared by transfers, and 3 ms",
        "signals: engines' gauges read every 1,000 ms, events of caches 20 ms late",
        "holding: while more than 100 ms of prefill wait, fcfs, at most 1,024 requests",
        "closed loop: 2 requests in flight, 5 ms between",
        "replica 1 slows by 2 at 9,000 ms",
    ):
        assert line in text


def test_several_routers_are_said(group):
    dealt = Conditions(routers=Routers(4, "session"))
    text = text_of(FleetDescription(groups=(group,), conditions=dealt), "table")
    assert "routers: 4, requests dealt to them by session" in text


def test_the_document_has_everything_that_the_tables_show(group):
    document = json.loads(text_of(FleetDescription(groups=(group,)), "json"))
    assert document["schema"] == "pointsman.fleet-comparison/1"
    assert document["percentile_method"] == "nearest_rank"
    assert document["objectives"] == {"ttft_ms": 40.0, "tpot_ms": None, "e2el_ms": None}
    assert document["baseline"] == "round_robin"
    fleet = document["fleet"]
    assert (fleet["replicas"], fleet["gpus"], fleet["model"]) == (2, 2, "vllm-v1")
    assert (fleet["block_size"], fleet["link"]) == (16, None)
    assert fleet["groups"][0]["engine"]["costs"]["per_iteration_ms"] == 10.0
    assert fleet["groups"][0]["costs_from"] == "costs.json"
    assert document["warnings"] == [
        "costs.json: prompt_tokens is 100 and the costs were fitted up to 50 tokens"
    ]
    best, *others = document["results"]
    assert best["metrics"]["goodput"]["fraction"] == 1.0
    assert best["metrics"]["ttft_ms"]["worst"] == 40.0
    assert best["metrics"]["statuses"] == {"finished": 4, "failed": 0, "rejected": 0}
    assert best["to_baseline"] == best["to_best"] == []
    for other in others:
        assert {each["figure"] for each in other["to_baseline"]} == {
            "goodput_fraction",
            "p95_ttft_ms",
            "mean_ttft_ms",
            "mean_e2e_ms",
        }
        assert set(other["to_baseline"][0]["interval"]) >= {"estimate", "low", "high", "level"}


def test_csv_has_a_line_a_policy_with_the_documents_names(group):
    rows = list(csv.DictReader(io.StringIO(text_of(FleetDescription(groups=(group,)), "csv"))))
    assert len(rows) == 3
    assert rows[0]["policy"] == "round_robin"
    assert float(rows[0]["ttft_ms.p95"]) == 40.0
    assert float(rows[0]["goodput.fraction"]) == 1.0
    assert rows[0]["statuses.failed"] == "0"
    assert rows[0]["to_baseline.p95_ttft_ms.low"] == ""
    assert rows[1]["to_baseline.p95_ttft_ms.verdict"] in ("worse", "better", "not told apart")
    assert {"skews.all.busy", "preemptions", "output_tokens_per_s_per_gpu"} <= set(rows[0])


def test_one_policy_has_no_differences(group):
    comparison = compare_on_fleet(
        FOUR, [POLICIES["round_robin"]], FleetDescription(groups=(group,)), Trial()
    )
    text = fleet_comparison_text(comparison, ReadOptions(), "table")
    assert "Differences" not in text
    assert text.rpartition("\n\n")[2].startswith("Only round_robin was run")
