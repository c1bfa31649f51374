"""Pages of measured groups."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from pointsman.bench.foretelling import REPORT
from pointsman.bench.prediction.ranking import Agreement
from pointsman.bench.prediction.report import FigureError, GroupReport, PredictionReport
from pointsman.bench.stages.rows import JoinedRow
from pointsman.core.errors import InputError
from pointsman.evidence.deciding import Choice, decide_files
from pointsman.evidence.decision_file import DecisionDocument, write_decision
from pointsman.evidence.envelope import Failure, StageMean
from pointsman.evidence.folder import evidence_files, write_envelope, write_rows
from pointsman.evidence.judging import Rule
from pointsman.metrics.latency import Spread
from pointsman.report.html.page import page_of
from pointsman.report.html.result import MEASURED, QUOTED, SIMULATED, Latency, Result, Run
from pointsman.report.html.sources.evidence import evidence_result
from pointsman.report.html.sources.files import results_at
from pointsman.report.html.sources.groups import run_of_group
from pointsman.report.html.sources.predictions import predictions_between
from pointsman.verdict.decide import Limits
from tests.evidence.groups import three_groups, with_repeats, written
from tests.evidence.mechanisms import mechanism


@pytest.fixture
def label(tmp_path):
    """The lesson's three groups, decided."""
    folder = written(tmp_path / "results" / "run-1", *three_groups())
    document = decide_files(evidence_files(folder), "run-1", Choice(), Rule(Limits(0.8, 0.05)))
    write_decision(folder, document)
    return folder


def row(number, first_ms, last_ms, **facts):
    return JoinedRow(
        number=number,
        request_id=str(number),
        asked_prompt_tokens=10,
        asked_output_tokens=11,
        intended_ms=1000.0 * number,
        first_token_ms=1000.0 * number + first_ms,
        last_token_ms=1000.0 * number + last_ms,
        output_tokens=11,
        status="ok",
        **facts,
    )


def with_rows(folder, group, rows):
    sides = [
        msgspec.structs.replace(each, rows=write_rows(folder, f"{group.group}-{each.number}", rows))
        for each in group.repeats
    ]
    return msgspec.structs.replace(group, repeats=tuple(sides))


def test_each_group_has_its_figures_and_its_decision(label):
    result = evidence_result(label, "run-1")
    single, several, split = result.tables[0].rows
    assert single[4:7] == (410.0, 10.1, 1020.0)
    assert (single[1], several[1]) == ("-", "accept")
    assert split[0] == "g2_pd_disaggregated"


def test_the_verdict_is_a_line_a_group_and_whole_reasons_are_folded_below(label):
    result = evidence_result(label, "run-1")
    best, *lines = result.verdict.splitlines()
    assert best == "Best of those accepted: g1_multi_replica, before g2_pd_disaggregated."
    assert [line.partition(": e2e_ms")[0] for line in lines] == [
        *("g1_multi_replica: accept", "g2_pd_disaggregated: accept")
    ]
    assert not any("; " in line for line in lines)
    decided = msgspec.json.decode((label / "decision.json").read_bytes(), type=DecisionDocument)
    (why,) = (table for table in result.tables if table.is_folded)
    assert why.rows[0][2] == decided.groups[0].reason
    assert "; " in why.rows[0][2]


def test_without_a_decision_the_page_says_how_to_come_to_one(tmp_path):
    folder = written(tmp_path / "a", *three_groups())
    assert "`pointsman decide`" in evidence_result(folder, "a").verdict


def test_the_latest_decision_counts(label):
    latest = (label / "decision.json").read_text().replace("accept", "tune")
    (label / "decision-2.json").write_text(latest)
    assert "g1_multi_replica: tune: " in evidence_result(label, "a").verdict


def decide_alone(path):
    document = decide_files([path], path.parent.name, Choice(), Rule(Limits(0.8, 0.05)))
    return write_decision(path.parent, document, f"{path.stem}.decision")


def test_a_decision_on_one_file_is_the_verdict(tmp_path):
    decision = decide_alone(write_envelope(tmp_path, mechanism()))
    (result,) = results_at([decision])
    assert result.verdict.startswith("mechanism.json: accept: ")
    assert ("Decision", "mechanism.decision.json, at 95%") in [
        (term, text.partition(", by")[0]) for term, text in result.basis
    ]


def test_of_several_decisions_each_is_said_with_its_file(label):
    decide_alone(write_envelope(label, mechanism()))
    lines = evidence_result(label, "a").verdict.splitlines()
    assert lines.pop(0).endswith("before g2_pd_disaggregated (decision.json).")
    named = [(line.partition(":")[0], line.rpartition(" ")[2]) for line in lines]
    assert named == [
        ("g1_multi_replica", "(decision.json)"),
        ("g2_pd_disaggregated", "(decision.json)"),
        ("mechanism.json", "(mechanism.decision.json)"),
    ]


def test_rows_of_all_repeats_make_the_distributions(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    rows = [row(0, 100.0, 300.0), row(1, 200.0, 700.0), row(2, 5.0, 9.0, is_warmup=True)]
    write_envelope(folder, with_rows(folder, three_groups()[0], rows))
    (run,) = evidence_result(folder, "a").runs
    ttft = run.latencies["ttft_ms"]
    assert (ttft.spread.count, ttft.spread.mean, ttft.spread.worst) == (6, 150.0, 200.0)
    assert ttft.quantiles[0] == 100.0
    assert run.latencies["tpot_ms"].spread.mean == 35.0  # (200 / 10 + 500 / 10) / 2


def test_waits_and_hand_offs_of_rows_have_distributions_where_they_are_known(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    known = {"router_ms": 2.0, "queue_wait_ms": 8.0, "handoff_ms": 4.0, "decode_wait_ms": 1.0}
    rows = [row(0, 100.0, 300.0, sent_ms=5.0, **known), row(1, 200.0, 700.0)]
    write_envelope(folder, with_rows(folder, three_groups()[2], rows))
    (run,) = evidence_result(folder, "a").runs
    wait = run.latencies["queue_wait_ms"].spread
    assert (wait.count, wait.mean) == (3, 15.0)  # sent at 5, 2 in the router, 8 in the engine
    assert run.latencies["handoff_ms"].spread.worst == 4.0


def test_stages_of_a_group_are_bars_in_their_order(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    means = [StageMean(name=n, mean_ms=ms, count=9) for n, ms in (("prefill", 4.0), ("e2e", 9.0))]
    write_envelope(folder, msgspec.structs.replace(three_groups()[0], stages=tuple(means)))
    result = evidence_result(folder, "a")
    assert result.runs[0].stages == {"prefill": 4.0}
    assert "Where does the time of a request go?" in page_of([result])


def test_a_file_of_somebody_else_is_quoted(tmp_path):
    (group, *_) = three_groups()
    document = msgspec.to_builtins(group)
    for name in ("schema", "kind", "details", "definitions"):
        del document[name]
    (tmp_path / "theirs.json").write_bytes(msgspec.json.encode(document))
    result = evidence_result(tmp_path, "a")
    assert result.runs[0].origin == QUOTED
    assert result.runs[0].figures["ttft_ms"].value == 410.0
    assert ("Quoted", "as their writers state them: theirs.json") in result.basis


def test_a_file_of_somebody_else_that_is_not_sound_is_left_out_with_the_reason(label):
    (label / "theirs.json").write_text('{"backend": "vllm"}')
    (warning,) = evidence_result(label, "a").warnings
    assert warning.startswith("theirs.json is left out: ")


def test_a_line_that_is_no_row_is_named(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    write_envelope(folder, with_rows(folder, three_groups()[0], [row(0, 1.0, 2.0)]))
    (folder / "rows" / "g0_single_replica-1.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match=r"g0_single_replica-1\.jsonl line 1: .*a request's row"):
        evidence_result(folder, "a")


def test_reasons_that_a_router_gave_are_counted(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    rows = [row(k, 1.0, 2.0, reason="home" if k else "new") for k in range(3)]
    write_envelope(folder, with_rows(folder, three_groups()[1], rows))
    (run,) = evidence_result(folder, "a").runs
    assert run.reasons == {"new": 3, "home": 6}
    assert np.sum(run.reasons_over_time.counts["home"]) == 6


def test_rows_that_are_lost_are_said_to_be(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    write_envelope(folder, with_rows(folder, three_groups()[0], [row(0, 1.0, 2.0)]))
    (folder / "rows" / "g0_single_replica-2.jsonl").unlink()
    result = evidence_result(folder, "a")
    assert result.warnings == (
        "rows/g0_single_replica-2.jsonl of g0_single_replica is not there: its rows are left out",
    )
    assert result.runs[0].latencies["ttft_ms"].spread.count == 2


def test_differences_to_the_baseline_have_their_intervals(label):
    run = evidence_result(label, "a").runs[1]
    by_name = {each.figure: each for each in run.differences}
    assert by_name["ttft_ms"].interval.value == -205.0
    assert by_name["ttft_ms"].against == "g0_single_replica"
    assert "kv_handoff_ms" not in by_name


def test_what_was_predicted_before_the_groups_ran_stands_beside_them(label):
    figure = FigureError(
        name="ttft_ms",
        unit="ms",
        predicted=246.0,
        measured=205.0,
        low=None,
        high=None,
        error=0.2,
        is_inside=None,
        reason=None,
    )
    group = GroupReport(
        group="g1_multi_replica",
        policy="fewest_misses",
        is_fitted=False,
        figures=(figure,),
        stages=(),
        predicted_cached_fraction=None,
        measured_cached_fraction=None,
        sentences=("mean TTFT is predicted 20.0% above",),
    )
    nothing = Agreement(right=0, counted=0, overlapping=0, without_interval=0, wrong=())
    report = PredictionReport(
        schema="pointsman.prediction_report/1",
        tolerance=0.1,
        groups=(group,),
        ranking={},
        in_order=nothing,
        not_measured={},
    )
    (label / REPORT).parent.mkdir()
    (label / REPORT).write_bytes(msgspec.json.encode(report))
    result = evidence_result(label, "a")
    assert [each.error_fraction for each in result.predictions] == pytest.approx([0.2])
    page = page_of([result])
    assert "Was the prediction right" in page
    assert "<summary>Predicted and measured</summary>" in page
    assert "g1_multi_replica: mean TTFT is predicted 20.0% above." in page


def test_what_a_reader_must_know_of_repeats_is_said_once(tmp_path):
    (group, *_) = three_groups()
    told = with_repeats(group, warnings=("two processes share a core",))
    result = evidence_result(written(tmp_path / "a", told), "a")
    assert result.warnings == ("g0_single_replica: two processes share a core",)


def test_a_group_that_failed_says_where_why_and_what_to_do(tmp_path):
    (group, *_) = three_groups()
    failure = Failure(stage="ready", reason="no answer in 60 s", retry="give it more memory")
    failed = msgspec.structs.replace(group, failure=failure)
    (warning, *_) = evidence_result(written(tmp_path / "a", failed), "a").warnings
    wanted = "it failed (ready): no answer in 60 s; give it more memory"
    assert warning == f"{group.group}: {wanted}"


def test_a_mechanism_run_has_a_row_a_strategy(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    write_envelope(folder, mechanism())
    result = evidence_result(folder, "a")
    assert [row[0] for row in result.tables[0].rows] == ["round_robin", "least_loaded"]
    assert "slowest rank" in page_of([result])


def test_a_file_of_a_label_stands_for_its_folder(label):
    from_file = results_at([label / "g1_multi_replica.json"])
    from_folder = results_at([label])
    assert len(from_file[0].runs) == len(from_folder[0].runs) == 3


def test_the_folder_above_the_only_label_will_do(label):
    assert len(results_at([label.parent])[0].runs) == 3


def test_the_same_result_twice_is_refused(label):
    with pytest.raises(InputError, match="given twice"):
        results_at([label, label / "g1_multi_replica.json"])


def test_a_folder_without_evidence_is_refused(tmp_path):
    (tmp_path / "other.json").write_text('{"schema": "pointsman.compare/1"}')
    with pytest.raises(InputError, match="no evidence; expected"):
        evidence_result(tmp_path, "a")


def paired(origin, policy, ttft_ms, e2e_ms, **parameters):
    spreads = {"ttft_ms": ttft_ms, "e2e_ms": e2e_ms}
    latencies = {name: Latency(Spread(count=1, mean=mean)) for name, mean in spreads.items()}
    stages = {"prefill": ttft_ms - 10.0, "decode": e2e_ms - ttft_ms}
    run = Run(
        name=policy,
        origin=origin,
        policy=policy,
        parameters=parameters,
        latencies=latencies,
        stages=stages,
    )
    return Result(label=origin, kind="", verdict="", tables=(), basis=(), runs=(run,))


def test_a_simulated_and_a_measured_run_of_one_policy_are_prediction_and_measurement():
    results = [
        paired(SIMULATED, "p", 60.0, 500.0, slack_ms=5.0),
        paired(MEASURED, "p", 110.0, 510.0, slack_ms=5.0),
    ]
    found = {(each.subject, each.figure): each for each in predictions_between(results)}
    # 50 ms against 100, and 440 against 400.
    assert found["prefill stage", "mean"].error_fraction == pytest.approx(-0.5)
    assert found["decode stage", "mean"].error_fraction == pytest.approx(0.1)
    assert found["E2E", "mean"].measured.value == 510.0


def test_another_parameter_is_another_policy_and_predicts_nothing():
    results = [
        paired(SIMULATED, "p", 60.0, 500.0, slack_ms=5.0),
        paired(MEASURED, "p", 110.0, 510.0, slack_ms=500.0),
    ]
    assert predictions_between(results) == ()


@pytest.mark.parametrize(
    ("policy", "parameters"),
    [
        ("locality_aware:slack_ms=20", {"slack_ms": 20.0}),
        ("locality_aware", {"slack_ms": 5.0}),
        ("mine.py:cheapest:x=1", {}),
    ],
)
def test_a_group_has_the_parameters_that_its_router_had(tmp_path, policy, parameters):
    group = three_groups()[1]
    layout = msgspec.structs.replace(group.layout, policy=policy)
    run = run_of_group(msgspec.structs.replace(group, layout=layout), [], None)
    assert run.parameters == parameters


def test_groups_are_on_the_same_fleet_where_shape_engine_and_hardware_are_the_same():
    group = three_groups()[1]
    layout = msgspec.structs.replace(group.layout, policy="random")
    other = msgspec.structs.replace(group, layout=layout)
    larger = msgspec.structs.replace(group, layout=msgspec.structs.replace(layout, replicas=3))
    hardware = msgspec.structs.replace(group.hardware, cores=64)
    elsewhere = msgspec.structs.replace(group, hardware=hardware)
    first, *others = (
        run_of_group(each, [], None).fleet for each in (group, other, larger, elsewhere)
    )
    assert [each == first for each in others] == [True, False, False]


def test_what_a_label_rests_on_is_said_of_whom_it_is_so(tmp_path):
    first, *others = three_groups()
    other = msgspec.structs.replace(first.workload, requests=7)
    folder = tmp_path / "a"
    folder.mkdir()
    for group in (msgspec.structs.replace(first, workload=other), *others):
        write_envelope(folder, group)
    basis = dict(evidence_result(folder, "a").basis)
    of_others = ", ".join(group.group for group in others)
    assert basis["Requests"].startswith(f"7 a repeat, {first.workload.load} load ({first.group}); ")
    assert basis["Requests"].endswith(f" ({of_others})")
    assert first.group not in basis["Engine"]


def test_two_simulated_runs_of_one_policy_predict_nothing():
    simulated = paired(SIMULATED, "p", 1.0, 2.0)
    assert predictions_between([simulated, simulated, paired(MEASURED, "p", 1.0, 2.0)]) == ()
