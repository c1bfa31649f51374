"""What the simulator itself did, taken as measured, is predicted from one replica of it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from pointsman.bench.client.arrivals import ClosedLoop, OpenLoop
from pointsman.bench.client.figures import seen_of
from pointsman.bench.client.load import Warmup
from pointsman.bench.experiment import SPLIT, Group, GroupRun
from pointsman.bench.prediction.calibrated import Calibrated, calibrated
from pointsman.bench.prediction.handoff import UNKNOWN, Handoff
from pointsman.bench.prediction.measured_group import MeasuredGroup, cached_token_fraction
from pointsman.bench.prediction.offered import Offered
from pointsman.bench.prediction.predicted import Predicted, predict, write_prediction
from pointsman.bench.prediction.report import against
from pointsman.core.errors import InputError
from pointsman.costs.calibrated import SCHEMA, CostFile, EngineFacts, Residuals, ValidityRange
from pointsman.evidence.measured import MeasuredRun, Told, group_figures
from pointsman.metrics.goodput import Objectives
from tests.bench.prediction.made import (
    ALONE,
    COSTS,
    LIMITS,
    MADE_AT,
    behind,
    requests,
    row,
    rows_of_run,
)

OPEN = Offered(requests())
CLOSED = Offered(requests(), ClosedLoop(6, think_ms=20.0))
OVERHEAD_MS = 4.0
NOT_TOLD = {
    name: Told(reason="the client does not see it")
    for name in ("queue_wait_ms", "kv_handoff_ms", "kv_handoff_bytes", "peak_memory_mb")
}
APART = Group(name="g2", mode=SPLIT, prefills=1, decodes=1, policies=("round_robin",))
PAIRS = GroupRun("g2", APART, "round_robin")

MINE = """
from pointsman import policy


@policy(rule="", source="", reasons=("only",), parameters={"ttft_ms": 3000.0})
def mine(request, view, parameters):
    return (request.sequence % 2 if parameters[0] < 100.0 else 1), 0
"""


def known(offered: Offered, overhead_ms: float = 0.0) -> Calibrated:
    """The costs as they are, without a fit."""
    limits = ValidityRange(10_000, 10_000, 100, 1_000_000, 100.0)
    engine = EngineFacts("vllm-v1", None, None, 1, 1, 4, 512, None, 16, False)
    file = CostFile(SCHEMA, COSTS, 0.0, engine, 80, limits, Residuals(0.0, 0.0))
    return Calibrated(ALONE, file, LIMITS, overhead_ms, 1, {}, ())


@pytest.fixture(scope="module")
def exact() -> Calibrated:
    return known(OPEN, OVERHEAD_MS)


@pytest.fixture(scope="module", params=["open", "closed"])
def fitted(request) -> tuple[Calibrated, Offered, float]:
    """Costs from one replica's rows, the repeat in the middle of three; the fit is not told them.

    Nobody is alone in a closed loop, so that what is before the engine cannot be told there.
    """
    offered, before_ms = (OPEN, OVERHEAD_MS) if request.param == "open" else (CLOSED, 0.0)
    whole = rows_of_run(offered, "round_robin", 1, before_ms)
    slow, slower = (
        [msgspec.structs.replace(each, last_token_ms=each.last_token_ms + ms) for each in whole]
        for ms in (-1.0, 900.0)
    )
    found = calibrated(ALONE, [slower, whole, slow], offered, LIMITS)
    return found, offered, before_ms


@pytest.mark.parametrize("policy", ["round_robin", "least_requests"])
def test_a_fleet_is_predicted_from_one_replica_of_it(fitted, policy):
    costs, offered, before_ms = fitted
    rows = rows_of_run(offered, policy, 2, before_ms)
    found = predict(costs, behind(policy), offered, MADE_AT)
    theirs = group_figures([MeasuredRun(seen_of(rows).answers)], NOT_TOLD).metrics
    for metric in ("ttft_ms", "tpot_ms", "e2e_ms", "throughput_tokens_per_s"):
        assert found.metrics.of(metric) == pytest.approx(theirs.of(metric), rel=0.05)
    assert found.cached_token_fraction == pytest.approx(cached_token_fraction(rows), abs=0.02)


def test_costs_are_fitted_to_the_repeat_whose_mean_is_the_median(fitted):
    assert fitted[0].repeat == 2


def test_a_group_reproduces_itself_in_the_report(fitted):
    costs, offered, before_ms = fitted
    rows = rows_of_run(offered, "round_robin", 1, before_ms)
    theirs = group_figures([MeasuredRun(seen_of(rows).answers)], NOT_TOLD).metrics
    ours = predict(costs, ALONE, offered, MADE_AT)
    [found] = against([ours], {"g0": MeasuredGroup("g0", theirs, {})}).groups
    assert found.is_fitted
    assert found.sentences == ()


@pytest.mark.parametrize("offered", [OPEN, CLOSED], ids=["open", "closed"])
@pytest.mark.parametrize("policy", ["round_robin", "least_requests", "locality_aware"])
def test_with_true_costs_the_prediction_is_the_run_itself(offered, policy):
    rows = rows_of_run(offered, policy, 2, OVERHEAD_MS)
    found = predict(known(offered, OVERHEAD_MS), behind(policy), offered, MADE_AT)
    theirs = group_figures([MeasuredRun(seen_of(rows).answers)], NOT_TOLD).metrics
    for metric in ("ttft_ms", "tpot_ms", "e2e_ms", "p95_ms", "p99_ms", "success_rate"):
        assert found.metrics.of(metric) == pytest.approx(theirs.of(metric), rel=1e-9)
    assert found.cached_token_fraction == cached_token_fraction(rows)


def test_the_stages_of_a_prediction_add_up_to_its_e2e(exact):
    found = predict(exact, behind("round_robin"), OPEN, MADE_AT)
    stages = msgspec.to_builtins(found.stages)
    assert sum(stages.values()) == pytest.approx(found.metrics.e2e_ms)
    assert found.stages.queue_ms >= exact.overhead_ms


def test_what_the_fit_makes_of_its_own_group_is_no_prediction(exact):
    assert predict(exact, ALONE, OPEN, MADE_AT).is_fitted
    assert not predict(exact, behind("round_robin"), OPEN, MADE_AT).is_fitted


def test_the_warm_up_loads_the_engines_and_is_in_no_figure(exact):
    warm = replace(OPEN, warmup=Warmup(requests=20))
    cold = predict(exact, behind("round_robin"), OPEN, MADE_AT)
    found = predict(exact, behind("round_robin"), warm, MADE_AT)
    assert found.cached_token_fraction > cold.cached_token_fraction


def test_a_known_hand_off_is_a_stage_of_its_own(exact):
    # 10 ms before it, then 2 bytes a token at 4 bytes a ms, all of the prompt.
    handoff = Handoff(base_ms=10.0, bytes_per_ms=4.0, kv_bytes_per_token=2.0)
    slow = Offered(requests(rate_rps=0.2))  # one at a time
    found = predict(exact, PAIRS, slow, MADE_AT, handoff)
    mean_tokens = float(np.mean(slow.workload.prompt_tokens))
    assert found.metrics.kv_handoff_bytes == pytest.approx(2.0 * mean_tokens)
    assert found.stages.handoff_ms == pytest.approx(10.0 + mean_tokens / 2.0, rel=0.01)


def test_an_unknown_hand_off_is_left_out_and_the_prediction_says_so(exact):
    found = predict(exact, PAIRS, OPEN, MADE_AT)
    assert found.metrics.kv_handoff_ms is None
    assert found.reasons["kv_handoff_ms"] == UNKNOWN
    assert found.stages.handoff_ms is None
    assert any("without it" in remark for remark in found.remarks)


def test_a_prediction_is_written_once_and_read_again(exact, tmp_path):
    found = predict(exact, behind("round_robin"), OPEN, MADE_AT)
    path = write_prediction(tmp_path, found)
    assert path == tmp_path / "prediction" / "groups" / "round_robin.json"
    assert msgspec.json.decode(path.read_bytes(), type=Predicted) == found
    with pytest.raises(InputError, match="is there already"):
        write_prediction(tmp_path, found)


def test_costs_of_other_ranks_a_lower_cap_and_longer_prompts_are_remarked(exact):
    wide = GroupRun("g3", Group(name="g3", replicas=2, tp=2, policies=("random",)), "random")
    capped = replace(OPEN, loop=OpenLoop(cap=1))
    found = predict(exact, wide, capped, MADE_AT)
    assert any("fitted with tp 1" in remark for remark in found.remarks)
    assert any("beyond 1" in remark for remark in found.remarks)


def test_a_policy_of_a_file_is_sought_from_its_folder_and_told_the_objectives(exact, tmp_path):
    """It takes turns where the objective is short, and else sends all to the second of two."""
    (tmp_path / "mine.py").write_text(MINE)
    group = Group(name="mine", replicas=2, policies=("mine.py:mine",))
    run = GroupRun("mine", group, "mine.py:mine")
    offered = replace(OPEN, folder=tmp_path)
    lax = predict(exact, run, offered, MADE_AT)
    strict = predict(exact, run, replace(offered, objectives=Objectives(ttft_ms=1.0)), MADE_AT)
    assert lax.metrics == predict(exact, ALONE, OPEN, MADE_AT).metrics
    assert strict.metrics == predict(exact, behind("round_robin"), OPEN, MADE_AT).metrics


def test_a_router_that_the_fitted_group_did_not_have_is_remarked(exact):
    def remarks(costs: Calibrated) -> str:
        return " ".join(predict(costs, behind("round_robin"), OPEN, MADE_AT).remarks)

    assert "without a router" in remarks(exact)
    assert "without a router" not in remarks(replace(exact, has_router=True))


def test_conversations_of_a_closed_loop_are_simulated_in_another_order_and_said(exact):
    turns = replace(CLOSED.workload, session=np.zeros(len(CLOSED.workload), dtype=np.int32))
    found = predict(exact, behind("round_robin"), replace(CLOSED, workload=turns), MADE_AT)
    assert any("take a conversation" in remark for remark in found.remarks)


def test_what_cannot_be_calibrated_on_is_refused():
    rows = rows_of_run(OPEN, "round_robin", 1)
    with pytest.raises(InputError, match="round_robin: replicas is 2; expected one"):
        calibrated(behind("round_robin"), [rows], OPEN, LIMITS)
    with pytest.raises(InputError, match="g0: no repeat"):
        calibrated(ALONE, [], OPEN, LIMITS)
    failed = [msgspec.structs.replace(each, status="error") for each in rows]
    with pytest.raises(InputError, match="no request ended well"):
        calibrated(ALONE, [failed], OPEN, LIMITS)


def test_rows_of_another_workload_are_refused():
    with pytest.raises(InputError, match=r"rows of g0: number is 999; expected a row of the work"):
        calibrated(ALONE, [[row(999)]], OPEN, LIMITS)
    with pytest.raises(InputError, match="request 0: asked_prompt_tokens is 1; expected"):
        calibrated(ALONE, [[row(0, asked_prompt_tokens=1)]], OPEN, LIMITS)


def test_a_group_of_a_program_of_ones_own_cannot_be_predicted(exact):
    own = GroupRun("g9", Group(name="g9", replicas=2, command=("./mine",)), None)
    with pytest.raises(InputError, match="g9: is measured by a program of its own"):
        predict(exact, own, OPEN, MADE_AT)


def test_too_few_requests_and_no_seed_are_refused():
    with pytest.raises(InputError, match="requests is 4; expected at least 5"):
        Offered(requests(count=4))
    with pytest.raises(InputError, match="seeds is"):
        Offered(requests(), seeds=())
