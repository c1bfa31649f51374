"""Stages of requests of real llama.cpp servers, seen by the load client."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from pointsman.bench.client.arrivals import OpenLoop
from pointsman.bench.client.load import Load
from pointsman.bench.client.measure import send_load
from pointsman.bench.client.target import Target
from pointsman.bench.engines.llamacpp import LlamaCpp
from pointsman.bench.engines.protocol import HandOff, Instance, Model
from pointsman.bench.engines.running import started
from pointsman.bench.engines.tiny_model import tiny_model
from pointsman.bench.stages.joined import joined
from pointsman.bench.stages.served import Served, ServedLoad
from pointsman.evidence.measured import MeasuredRun, Told, group_figures
from tests.bench.client.loads import requests
from tests.bench.client.stand_in import run
from tests.router.serve_process import serving

for needed in ("xllamacpp", "gguf", "tokenizers"):
    pytest.importorskip(needed, reason=f"{needed} is missing: pip install pointsman[llamacpp]")
pytestmark = pytest.mark.engine

STAGES = (
    *("client_delay_ms", "router_ms", "queue_wait_ms", "prefill_ms"),
    *("handoff_ms", "decode_wait_ms", "decode_ms"),
)


def instance(**settings):
    return Instance(Model(str(tiny_model()), "tiny"), **settings)


def rows_of(url, count):
    """So many requests at once, of 600 and 64 tokens."""
    workload = requests(count, prompt_tokens=[600] * count, output_tokens=[64] * count)
    target = Target(url, "tiny", "llamacpp")
    return run(send_load(target, Load(workload, OpenLoop(), name="stages"))).rows


def total_of(row):
    return sum(getattr(row, stage) or 0.0 for stage in STAGES)


def test_with_one_slot_the_second_request_waits_for_as_long_as_the_first_one_is_served(tmp_path):
    with started(LlamaCpp(), [instance(max_running=1)], tmp_path) as replicas:
        rows = rows_of(replicas[0].url, 2)
        found = joined(Served.by(replicas), [ServedLoad(rows)]).loads[0].rows
    first, second = sorted(found, key=lambda row: row.first_token_ms)
    served_ms = first.prefill_ms + first.decode_ms
    assert second.queue_wait_ms == pytest.approx(served_ms, rel=0.5)
    assert first.queue_wait_ms < second.queue_wait_ms / 2
    assert second.scheduled_ms > first.first_token_ms


def test_a_hand_off_has_time_and_bytes_and_all_stages_add_up(tmp_path):
    handoff = HandOff("llamacpp", tmp_path / "slots")
    pair = [instance(role=role, handoff=handoff) for role in ("prefill", "decode")]
    log = tmp_path / "decisions.jsonl"
    with ExitStack() as stack:
        replicas = stack.enter_context(started(LlamaCpp(), pair, tmp_path))
        flags = ("--prefill", replicas[0].url, "--decode", replicas[1].url)
        told = ("--handoff", "llamacpp", "--decision-log", str(log))
        router = stack.enter_context(serving(*flags, *told))
        rows = rows_of(f"http://127.0.0.1:{router.port}", 3)
        assert router.stop() == 0
        found = joined(Served.by(replicas), [ServedLoad(rows, (log,))])
    for row in found.loads[0].rows:
        assert row.handoff_ms > 0.0
        assert row.handoff_bytes > 600 * 1000
        assert row.prefill_ms > row.engine_prefill_ms  # the decode replica computes one token
        assert total_of(row) == pytest.approx(row.last_token_ms - row.intended_ms, abs=0.01)
    run_of = [MeasuredRun(found.loads[0].answers)]
    figures = group_figures(run_of, {**found.told, "peak_memory_mb": Told(reason="not measured")})
    for name in ("queue_wait_ms", "kv_handoff_ms", "kv_handoff_bytes"):
        assert figures.details[name].count == 3
