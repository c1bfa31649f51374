"""Costs fitted to one real llama.cpp server, and two of them predicted before they run.

No time is asserted: what is shown is that the whole loop runs on a real engine, that its cache is
predicted, and that one replica is told from two.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from pointsman.bench.client.arrivals import ClosedLoop
from pointsman.bench.client.figures import seen_of
from pointsman.bench.client.load import Load
from pointsman.bench.client.measure import send_load
from pointsman.bench.client.rows import Row
from pointsman.bench.client.target import Target
from pointsman.bench.experiment import Group, GroupRun
from pointsman.bench.prediction.calibrated import Calibrated, calibrated
from pointsman.bench.prediction.limits import LLAMACPP_BATCH_TOKENS, EngineLimits
from pointsman.bench.prediction.measured_group import MeasuredGroup, cached_token_fraction
from pointsman.bench.prediction.offered import Offered
from pointsman.bench.prediction.predicted import Predicted, predict
from pointsman.bench.prediction.report import PredictionReport, against
from pointsman.evidence.measured import MeasuredRun, Told, group_figures
from pointsman.report.prediction import prediction_text
from tests.bench.client.stand_in import run
from tests.bench.prediction.made import ALONE, MADE_AT, requests
from tests.engine.llama_server import llama_server
from tests.router.serve_process import serving

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")
pytest.importorskip("tokenizers")
pytestmark = pytest.mark.engine

SLOTS, CONTEXT = 8, 4096  # of the tests' servers
POLICIES = ("round_robin", "least_requests")
OFFERED = Offered(requests(count=40), ClosedLoop(6))
LIMITS = EngineLimits(SLOTS, LLAMACPP_BATCH_TOKENS, context_tokens=CONTEXT, shares_late=True)
NOT_TOLD = {
    name: Told(reason="nobody looks here")
    for name in ("queue_wait_ms", "kv_handoff_ms", "kv_handoff_bytes", "peak_memory_mb")
}


def behind(policy: str) -> GroupRun:
    return GroupRun(policy, Group(name=policy, replicas=2, policies=(policy,)), policy)


def measured_rows(policy: str, replicas: int, folder: Path) -> tuple[Row, ...]:
    """Fresh servers behind a router."""
    from pointsman.bench.engines.tiny_model import tiny_model

    with ExitStack() as stack:
        engines = [
            stack.enter_context(llama_server(tiny_model(), folder / f"{policy}-{number}.log"))
            for number in range(replicas)
        ]
        flags = [flag for engine in engines for flag in ("--replica", engine.url)]
        router = stack.enter_context(serving(*flags, "--policy", policy))
        target = Target(f"http://127.0.0.1:{router.port}", "tiny", "llamacpp")
        return run(send_load(target, Load(OFFERED.workload, OFFERED.loop))).rows


def measured(name: str, rows: tuple[Row, ...]) -> MeasuredGroup:
    found = group_figures([MeasuredRun(seen_of(rows).answers)], NOT_TOLD).metrics
    return MeasuredGroup(name, found, {}, cached_token_fraction=cached_token_fraction(rows))


@pytest.fixture(scope="module")
def costs(tmp_path_factory) -> tuple[Calibrated, MeasuredGroup]:
    rows = measured_rows("round_robin", 1, tmp_path_factory.mktemp("g0"))
    return calibrated(ALONE, [rows], OFFERED, LIMITS), measured("g0", rows)


@pytest.fixture(scope="module")
def predictions(costs) -> list[Predicted]:
    groups = [ALONE, *map(behind, POLICIES)]
    return [predict(costs[0], each, OFFERED, MADE_AT) for each in groups]


@pytest.fixture(scope="module")
def report(costs, predictions, tmp_path_factory) -> PredictionReport:
    """Measured after it was predicted."""
    folder = tmp_path_factory.mktemp("g1")
    groups = {name: measured(name, measured_rows(name, 2, folder)) for name in POLICIES}
    return against(predictions, {"g0": costs[1], **groups})


def test_every_group_is_held_against_its_prediction_with_all_its_stages(report):
    assert [each.group for each in report.groups] == ["g0", *POLICIES]
    for group in report.groups:
        errors = {each.name: each.error for each in group.figures}
        assert None not in (errors["ttft_ms"], errors["tpot_ms"], errors["e2e_ms"])
        assert all(stage.predicted_ms is not None for stage in group.stages)
        assert group.measured_cached_fraction is not None
    assert "round_robin" in prediction_text(report, "table")


def test_two_replicas_are_faster_than_one_as_predicted(report):
    def e2e_ms(which: str) -> list[float]:
        found = [each for group in report.groups for each in group.figures if each.name == "e2e_ms"]
        return [getattr(each, which) for each in found]

    for one, *two in (e2e_ms("predicted"), e2e_ms("measured")):
        assert all(each < one for each in two)


def test_what_the_slots_share_is_predicted(report):
    """64 of some 190 tokens are shared: a cache that shares nothing is off by 0.3."""
    for group in report.groups:
        measured_fraction = group.measured_cached_fraction
        assert group.predicted_cached_fraction == pytest.approx(measured_fraction, abs=0.1)


def test_costs_through_a_router_have_what_it_takes_in_them(costs, predictions):
    assert costs[0].has_router
    assert not any("without a router" in text for each in predictions for text in each.remarks)
