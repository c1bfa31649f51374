"""Groups of stand-ins that run already, measured as users measure them: what the evidence says.

One experiment for all of it: 12 requests of 20 and 4 tokens, the first two of them warm-up; one
replica, two behind two policies, two that prefill and one that decodes, twice each, by abba.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
from dataclasses import dataclass
from pathlib import Path

import pytest

from pointsman.bench import odd_repeats
from pointsman.cli.main import main
from pointsman.evidence.metrics import METRIC_NAMES
from tests.bench.engines.answering import MODEL, QUEUE_MS, answering
from tests.bench.experiments import apart, bench, group_in, one, rows_of, several, written
from tests.evidence.test_envelope import LESSON_FIELDS, LESSON_METRICS

COUNTED, REPEATS = 10, 2
G0, G1A, G1B, G2 = NAMES = ("g0", "g1a_several", "g1b_several", "g2_apart")
HEAD = "repeats = 2\nwarmup_requests = 2"
SLO = "[slo]\nttft_ms = 60000\ntpot_ms = 60000\nattainment = 0.9\n"
WORKLOAD = "seed = 3\nkv_bytes_per_token = 1000"


@dataclass(frozen=True)
class Ran:
    folder: Path
    code: int
    out: str
    err: str
    url: str  # of the only replica of g0

    def group(self, name: str) -> dict:
        return group_in(self.folder, name)

    def rows(self, name: str) -> list[list[dict]]:
        """Of each repeat, those that count."""
        files = [rows_of(self.folder, repeat) for repeat in self.group(name)["repeats"]]
        return [[row for row in rows if not row["is_warmup"]] for rows in files]


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> Ran:
    folder = tmp_path_factory.mktemp("measured")
    out, err = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        answering() as first,
        answering() as second,
        answering() as third,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setattr(odd_repeats, "LEAST_REPEATS", 2)  # so that every repeat is an odd one
        patch.setattr(odd_repeats, "ODD_RATIO", 1.0)
        groups = [
            one(first, name=G0),
            several(first, second, policies=["round_robin", "least_requests"]),
            apart(first, second, third, prefills=2),
        ]
        file = written(folder, groups, head=HEAD, workload=WORKLOAD)
        file.write_text(file.read_text() + SLO)
        code = bench(file, "--order", "abba")
        url = first.url
    return Ran(folder / "results" / "run-1", code, out.getvalue(), err.getvalue(), url)


def test_every_group_leaves_a_sound_file_of_its_own_and_nothing_else(ran, capsys):
    assert ran.code == 0, ran.err
    files = [str(ran.folder / f"{name}.json") for name in NAMES]
    assert main(["evidence", "check", *files]) == 0, capsys.readouterr().out
    there = {path.name for path in ran.folder.glob("*.json")} - {"decision.json"}
    assert there == {f"{name}.json" for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_file_has_the_lessons_fields_and_exactly_its_metrics(ran, name):
    group = ran.group(name)
    assert set(group) >= LESSON_FIELDS
    assert set(group["metrics"]) == LESSON_METRICS
    assert group["evidence_level"] == "real_engine_cpu"
    assert (group["failure"], group["decision"]) == (None, None)


def test_the_shapes_are_one_replica_several_behind_each_policy_and_a_split(ran):
    keys = ("mode", "replicas", "prefills", "decodes", "tp", "pp", "policy", "handoff")
    shapes = {name: tuple(ran.group(name)["layout"][key] for key in keys) for name in NAMES}
    assert shapes == {
        G0: ("replica", 1, None, None, 1, 1, None, None),
        G1A: ("replica", 2, None, None, 1, 1, "round_robin", None),
        G1B: ("replica", 2, None, None, 1, 1, "least_requests", None),
        G2: ("pd_disaggregated", 3, 2, 1, 1, 1, "round_robin", "shared_storage"),
    }


def test_abba_goes_through_all_groups_and_back_and_each_repeat_says_when(ran):
    order = {name: [r["position"] for r in ran.group(name)["repeats"]] for name in NAMES}
    assert order == {G0: [1, 8], G1A: [2, 7], G1B: [3, 6], G2: [4, 5]}


def test_caches_were_reset_and_every_repeat_has_the_seed_that_was_given(ran):
    for name in NAMES:
        repeats = ran.group(name)["repeats"]
        assert [(r["number"], r["cache"], r["seed"]) for r in repeats] == [
            (1, "reset", 3),
            (2, "reset", 3),
        ]


def test_the_workload_is_the_same_for_all_and_the_warm_up_is_not_in_it(ran):
    workloads = [ran.group(name)["workload"] for name in NAMES]
    assert all(each == workloads[0] for each in workloads)
    assert workloads[0]["requests"] == COUNTED
    assert workloads[0]["warmup_requests"] == 2
    assert (workloads[0]["prompt_tokens"], workloads[0]["output_tokens"]) == (200, 40)
    assert len(workloads[0]["sha256"]) == 64


@pytest.mark.parametrize("name", NAMES)
def test_the_warm_up_is_in_the_side_file_and_in_no_figure(ran, name):
    group = ran.group(name)
    for repeat in group["repeats"]:
        rows = rows_of(ran.folder, repeat)
        assert [row["is_warmup"] for row in rows] == [True] * 2 + [False] * COUNTED
        assert repeat["statuses"]["offered"] == repeat["statuses"]["ok"] == COUNTED
    assert group["statuses"]["offered"] == COUNTED * REPEATS
    assert group["details"]["e2e_ms"]["count"] == COUNTED * REPEATS


@pytest.mark.parametrize("name", NAMES)
def test_side_files_have_the_digest_and_the_number_of_rows_that_is_stated(ran, name):
    for repeat in ran.group(name)["repeats"]:
        content = (ran.folder / repeat["rows"]["file"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == repeat["rows"]["sha256"]
        assert content.count(b"\n") == repeat["rows"]["rows"] == COUNTED + 2


@pytest.mark.parametrize("name", NAMES)
def test_the_figures_are_those_of_the_rows_of_all_repeats_together(ran, name):
    """Each by its definition, from intended arrival, over the rows as they were written."""
    repeats, metrics = ran.rows(name), ran.group(name)["metrics"]
    rows = [row for each in repeats for row in each]
    e2e = sorted(row["last_token_ms"] - row["intended_ms"] for row in rows)
    ttft = [row["first_token_ms"] - row["intended_ms"] for row in rows]
    tpot = [(row["last_token_ms"] - row["first_token_ms"]) / 3 for row in rows]
    windows = [
        max(row["last_token_ms"] for row in each) - min(row["intended_ms"] for row in each)
        for each in repeats
    ]
    assert metrics["ttft_ms"] == pytest.approx(math.fsum(ttft) / 20)
    assert metrics["tpot_ms"] == pytest.approx(math.fsum(tpot) / 20)
    assert metrics["e2e_ms"] == pytest.approx(math.fsum(e2e) / 20)
    assert metrics["p95_ms"] == pytest.approx(e2e[18])  # nearest rank: the 19th of 20
    assert metrics["p99_ms"] == pytest.approx(e2e[19])
    assert metrics["throughput_tokens_per_s"] == pytest.approx(20 * 4 * 1e3 / sum(windows))
    assert metrics["success_rate"] == 1.0


def test_the_queue_is_what_the_engine_says_behind_the_clients_own_delay(ran):
    delays = [row["client_delay_ms"] for rows in ran.rows(G0) for row in rows]
    found = ran.group(G0)["metrics"]["queue_wait_ms"]
    assert found == pytest.approx(QUEUE_MS + math.fsum(delays) / len(delays))
    source = ran.group(G0)["details"]["queue_wait_ms"]["source"]
    assert "vllm:request_queue_time_seconds" in source


@pytest.mark.parametrize("name", NAMES)
def test_a_metric_that_is_not_known_is_null_with_its_reason_and_never_0(ran, name):
    group = ran.group(name)
    for metric in METRIC_NAMES:
        value, detail = group["metrics"][metric], group["details"][metric]
        assert (value is None) == (detail["source"] is None) == (detail["reason"] is not None)
        assert value != 0
    memory = group["details"]["peak_memory_mb"]["reason"]
    assert memory.startswith("the engines were not started by us")


def test_a_hand_off_that_nobody_times_has_its_bytes_and_a_reason(ran):
    """Of 20 prompt tokens at 1,000 bytes each."""
    group = ran.group(G2)
    assert group["metrics"]["kv_handoff_bytes"] == 20_000
    assert group["details"]["kv_handoff_bytes"]["source"].startswith("computed, not measured")
    assert group["metrics"]["kv_handoff_ms"] is None
    assert group["details"]["kv_handoff_ms"]["reason"].startswith("nobody tells")
    reasons = {ran.group(name)["details"]["kv_handoff_ms"]["reason"] for name in (G0, G1A)}
    assert reasons == {"nothing is handed off: prefill and decode are not apart"}


def test_what_the_replicas_got_adds_up(ran):
    for name, replicas in ((G0, 1), (G1A, 2), (G1B, 2)):
        for repeat in ran.group(name)["repeats"]:
            loads = repeat["loads"]
            assert [each["pool"] for each in loads] == ["all"] * replicas
            assert sum(each["requests"] for each in loads) == COUNTED
            assert sum(each["tokens"] for each in loads) == COUNTED * (20 + 4)


def test_round_robin_gives_each_of_two_replicas_half(ran):
    for repeat in ran.group(G1A)["repeats"]:
        assert [each["requests"] for each in repeat["loads"]] == [5, 5]


def test_a_request_of_a_split_counts_where_it_prefills_and_where_it_decodes(ran):
    for repeat in ran.group(G2)["repeats"]:
        loads = repeat["loads"]
        assert [each["pool"] for each in loads] == ["prefill", "prefill", "decode"]
        assert [sum(each["requests"] for each in loads[:2]), loads[2]["requests"]] == [10, 10]


def test_the_stages_that_are_known_have_a_mean_and_a_count(ran):
    stages = {each["name"]: each for each in ran.group(G0)["stages"]}
    assert next(iter(stages)) == "client_delay"
    assert "router" not in stages
    assert "handoff" not in stages
    assert stages["e2e"]["mean_ms"] == pytest.approx(ran.group(G0)["metrics"]["e2e_ms"])
    assert stages["e2e"]["count"] == COUNTED * REPEATS
    assert "router" in {each["name"] for each in ran.group(G1A)["stages"]}


def test_goodput_is_of_all_that_were_offered(ran):
    goodput = ran.group(G0)["goodput"]
    assert (goodput["offered"], goodput["met"], goodput["fraction"]) == (20, 20, 1.0)
    assert goodput["objectives"] == {
        "ttft_ms": 60000.0,
        "tpot_ms": 60000.0,
        "e2el_ms": None,
        "attainment": 0.9,
    }


def test_each_repeat_says_what_its_reader_must_know(ran):
    for repeat in ran.group(G0)["repeats"]:
        assert any(text.startswith("few: 10 requests ended well") for text in repeat["warnings"])


def test_a_repeat_that_is_unlike_the_others_says_so_first_with_its_own_mean(ran):
    for repeat in ran.group(G0)["repeats"]:
        mean_ms = f"{repeat['metrics']['e2e_ms']:,.4g}"
        assert repeat["warnings"][0].startswith(f"its mean E2E of {mean_ms} ms is ")


def test_what_served_is_stated_as_the_engine_says_it(ran):
    backend = ran.group(G1A)["backend"]
    assert (backend["engine"], backend["version"]) == ("external", "vllm 0.32.0")
    assert backend["model"]["id"] == MODEL
    assert backend["commands"] == []
    assert backend["router_command"].startswith("pointsman serve --listen ")
    assert ran.group(G0)["backend"]["router_command"] is None


def test_the_router_is_a_process_of_its_own_whose_log_is_kept(ran):
    logs = {path.name for path in (ran.folder / "rows").glob("*.decisions.jsonl")}
    assert logs == {f"{name}-{k}.decisions.jsonl" for name in NAMES[1:] for k in (1, 2)}
    said = (ran.folder / "logs" / G1A / "router.log").read_text()
    assert said.count("-m pointsman serve") == REPEATS


def test_requests_of_one_replica_go_to_it_and_to_no_router(ran):
    assert all(row["replica"] is None for rows in ran.rows(G0) for row in rows)
    served = {row["replica"] for rows in ran.rows(G1A) for row in rows}
    assert len(served) == 2
    assert ran.url in served


def test_progress_says_group_requests_rate_errors_and_the_time_to_the_first_token(ran):
    for name in NAMES:
        for number in (1, 2):
            said = [line for line in ran.err.splitlines() if line.startswith(f"{name} {number} of")]
            assert "12 of 12 sent, 12 ended" in said[-1]
            assert "0 errors, TTFT " in said[-1]
            assert "/s, " in said[-1]


def test_the_table_has_a_line_a_group_in_the_groups_order(ran):
    names = [line.split()[0] for line in ran.out.splitlines() if line]
    assert names[: names.index(G2) + 1] == ["group", *NAMES]
    split = next(line for line in ran.out.splitlines() if line.startswith(f"{G2} "))
    assert "2P1D" in split


def test_the_folder_is_what_decide_takes_and_its_decision_lies_there(ran, capsys):
    """Unless a busy machine made the client the bottleneck, which is no result."""
    if any(each["invalid"] for each in ran.group(G0)["repeats"]):
        assert "nothing is decided" in ran.err
        assert "the baseline failed at stage client" in ran.err
        return
    document = json.loads((ran.folder / "decision.json").read_text())
    assert {each["group"] for each in document["groups"]} == set(NAMES[1:])
    assert main(["decide", str(ran.folder), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == document
