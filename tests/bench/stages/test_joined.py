"""A group's columns, stages and sources."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest

from pointsman.bench.client.rows import read_rows, write_rows
from pointsman.bench.stages.joined import joined
from pointsman.bench.stages.means import Stage
from pointsman.bench.stages.pages import page_of
from pointsman.bench.stages.served import Served, ServedLoad
from pointsman.bench.stages.sources import NOT_APART
from pointsman.core.errors import InputError
from pointsman.dispatch.record import FellBack, HandedOff, Prefilled
from pointsman.evidence.measured import MeasuredRun, Told, Total, group_figures
from tests.bench.stages.made import PAIRS, A, B, choice, head, outcome, pair_choice, row, written

LLAMACPP = Served("llama.cpp", (A, B))
LLAMACPP_PAIR = Served("llama.cpp", (A, B), (A,), "llamacpp")
VLLM = Served("vllm", (A, B))
NIXL = Served("vllm", (A, B), (A,), "nixl")
MEMORY = {"peak_memory_mb": Told(reason="not measured")}


def page(**totals: tuple[float, int]) -> str:
    """Of vLLM: sum and count of each histogram."""
    lines = (
        f"vllm:{name}_sum {amount}\nvllm:{name}_count {count}\n"
        for name, (amount, count) in totals.items()
    )
    return "".join(lines)


def pages(**totals):
    return {url: page_of(page(**totals)) for url in (A, B)}


EMPTY = {A: page_of(""), B: page_of("")}


def figures(served, *loads):
    found = joined(served, loads)
    runs = [MeasuredRun(each.answers) for each in found.loads]
    return group_figures(runs, {**found.told, **MEMORY}), found


def test_queue_wait_of_llamacpp_is_of_each_request_from_its_intended_arrival():
    rows = [row(0, engine_prefill_ms=300.0), row(1, engine_prefill_ms=310.0)]
    made, found = figures(LLAMACPP, ServedLoad(rows))
    assert found.loads[0].answers.queue_wait_ms.tolist() == [30.0, 20.0]
    assert made.metrics.queue_wait_ms == 25.0
    assert "prompt_ms" in made.details["queue_wait_ms"].source


def test_what_is_not_apart_hands_nothing_off():
    made, _ = figures(LLAMACPP, ServedLoad([row(engine_prefill_ms=300.0)]))
    for name in ("kv_handoff_ms", "kv_handoff_bytes"):
        assert made.metrics.of(name) is None
        assert made.details[name].reason == NOT_APART


def test_warm_up_has_rows_and_is_in_no_figure():
    rows = [row(0, is_warmup=True, engine_prefill_ms=1.0), row(1, engine_prefill_ms=310.0)]
    made, found = figures(LLAMACPP, ServedLoad(rows))
    assert len(found.loads[0].rows) == 2
    assert made.metrics.queue_wait_ms == 20.0
    assert found.stages.prefill == Stage(310.0, 1)


def test_stages_are_means_of_what_each_request_knows():
    rows = [row(0, engine_prefill_ms=300.0), row(1, engine_prefill_ms=310.0), row(2)]
    stages = joined(LLAMACPP, [ServedLoad(rows[:2]), ServedLoad(rows[2:])]).stages
    assert stages.queue_wait == Stage(23.0, 2)
    assert stages.e2e == Stage(430.0, 3)
    assert (stages.router, stages.handoff, stages.decode_wait) == (None, None, None)


def pair_log(path, *, bytes_of=2_500_000):
    lines = (
        pair_choice(),
        Prefilled(0, 1250.0, None, 230.0),
        HandedOff(0, 1262.0, 0, 100.0, 12.0, bytes_of),
        outcome(first_token_ms=1270.0),
        pair_choice(1),
        FellBack(1, 1040.0, "prefill_lost", 100, True),
        outcome(1, first_token_ms=1320.0),
    )
    return written(path, PAIRS, *lines)


PAIR_ROWS = (
    row(0, first_token_ms=290.0, last_token_ms=390.0, engine_prefill_ms=3.0),
    row(1, engine_prefill_ms=250.0),
)


def test_a_hand_off_of_slots_has_time_and_bytes_of_each_request(tmp_path):
    load = ServedLoad(PAIR_ROWS, pair_log(tmp_path / "log"))
    made, found = figures(LLAMACPP_PAIR, load)
    answers = found.loads[0].answers
    assert np.array_equal(answers.handoff_ms, [12.0, math.nan], equal_nan=True)
    assert (made.metrics.kv_handoff_ms, made.metrics.kv_handoff_bytes) == (12.0, 2_500_000)
    assert made.details["kv_handoff_ms"].count == 1
    # 2 + 8 + 20 and 2 + 8 + 70: client, router, wait.
    assert made.metrics.queue_wait_ms == 55.0
    assert found.stages.handoff == Stage(12.0, 1)


def test_where_all_fell_back_the_reason_says_why(tmp_path):
    lines = (pair_choice(), FellBack(0, 1040.0, "prefill_lost", 100, True), outcome())
    load = ServedLoad([row(engine_prefill_ms=1.0)], written(tmp_path / "log", PAIRS, *lines))
    made, _ = figures(LLAMACPP_PAIR, load)
    reason = "no request was handed off: 1 prefill_lost"
    assert made.details["kv_handoff_bytes"].reason == reason


def test_without_the_routers_log_a_hand_off_is_not_known():
    made, _ = figures(LLAMACPP_PAIR, ServedLoad([row()]))
    assert made.details["kv_handoff_ms"].reason.startswith("the router's log is not there")


def test_queue_wait_of_vllm_is_the_histograms_mean_behind_what_each_request_took_before(tmp_path):
    # 0.6 s over 4 requests, a warm-up among them; 2 + 8 ms before, of client and router.
    log = written(tmp_path / "log", head(), choice(), outcome())
    after = pages(request_queue_time_seconds=(0.3, 2), request_prefill_time_seconds=(0.5, 2))
    made, found = figures(VLLM, ServedLoad([row()], log, EMPTY, after))
    assert made.metrics.queue_wait_ms == pytest.approx(160.0)
    assert made.details["queue_wait_ms"].count == 1
    assert "vllm:request_queue_time_seconds" in made.details["queue_wait_ms"].source
    assert found.stages.queue_wait == Stage(pytest.approx(150.0), 4)
    assert found.stages.prefill == Stage(pytest.approx(250.0), 4)
    assert np.isnan(found.loads[0].answers.scheduled_ms).all()


def test_each_repeat_has_its_own_mean():
    loads = [
        ServedLoad([row()], (), EMPTY, pages(request_queue_time_seconds=(amount, 1)))
        for amount in (0.1, 0.2)
    ]
    made, _ = figures(VLLM, *loads)
    assert [each.queue_wait_ms for each in made.repeats] == pytest.approx([102.0, 202.0])
    assert made.metrics.queue_wait_ms == pytest.approx(152.0)


def test_an_engine_whose_pages_were_not_read_has_a_reason_and_no_0():
    made, _ = figures(VLLM, ServedLoad([row()]))
    assert made.metrics.queue_wait_ms is None
    assert "no page of metrics was read" in made.details["queue_wait_ms"].reason


def nixl_log(path):
    lines = [
        line
        for k in (0, 1)
        for line in (
            pair_choice(k),
            Prefilled(k, 1250.0, None),
            HandedOff(k, 1300.0, 0, 100.0, 40.0, None),
            outcome(k),
        )
    ]
    return written(path, PAIRS, *lines)


def test_bytes_of_nixl_are_those_of_all_ranks_of_a_request(tmp_path):
    # Two requests, four transfers of two ranks: 1,000 bytes and 20 ms each.
    after = {
        A: page_of(page(request_queue_time_seconds=(0.2, 2))),
        B: page_of(
            page(
                request_queue_time_seconds=(8.0, 2),
                nixl_xfer_time_seconds=(0.08, 4),
                nixl_bytes_transferred=(4000.0, 4),
            )
        ),
    }
    load = ServedLoad([row(0), row(1)], nixl_log(tmp_path / "log"), EMPTY, after)
    made, found = figures(NIXL, load)
    assert made.metrics.kv_handoff_ms == pytest.approx(20.0)
    assert made.metrics.kv_handoff_bytes == 2000.0
    # The prefill replica's alone: the decode replica's queue is behind the transfer.
    assert found.stages.queue_wait == Stage(pytest.approx(100.0), 2)


def test_transfers_that_no_page_tells_of_are_unknown(tmp_path):
    load = ServedLoad([row(0), row(1)], nixl_log(tmp_path / "log"), EMPTY, EMPTY)
    made, _ = figures(NIXL, load)
    reason = "no page of metrics has vllm:nixl_bytes_transferred"
    assert made.details["kv_handoff_bytes"].reason == reason


@pytest.mark.parametrize(("each", "told"), [(2048.0, 204_800.0), (None, None)])
def test_bytes_of_shared_storage_are_computed_and_say_so(tmp_path, each, told):
    served = Served("vllm", (A, B), (A,), "shared_storage", each)
    load = ServedLoad([row(0), row(1)], nixl_log(tmp_path / "log"))
    made, _ = figures(served, load)
    detail = made.details["kv_handoff_bytes"]
    assert made.metrics.kv_handoff_bytes == told
    assert (detail.source or detail.reason).startswith("computed" if each else "nobody tells")
    assert made.details["kv_handoff_ms"].reason.startswith("nobody tells")


def test_sglang_tells_mebibytes(tmp_path):
    text = "sglang:kv_transfer_total_mb_sum 3.0\nsglang:kv_transfer_total_mb_count 2\n"
    served = Served("sglang", (A, B), (A,), "sglang")
    after = {A: page_of(text), B: page_of("")}
    load = ServedLoad([row(0), row(1)], nixl_log(tmp_path / "log"), EMPTY, after)
    assert joined(served, [load]).told["kv_handoff_bytes"].totals == (Total(3 * 1048576.0, 2),)


def test_an_engine_that_is_not_known_says_so():
    made, _ = figures(Served(None, (A,)), ServedLoad([row()]))
    assert made.details["queue_wait_ms"].reason.startswith("an engine that is not known")


def test_rows_of_the_side_file_are_the_clients_with_more(tmp_path):
    rows = [row(0, engine_prefill_ms=300.0), row(1, status="error", error="lost")]
    found = joined(LLAMACPP, [ServedLoad(rows)]).loads[0].rows
    write_rows(found, tmp_path / "rows")
    assert read_rows(tmp_path / "rows") == rows
    assert msgspec.json.decode(msgspec.json.encode(found[0]))["queue_wait_ms"] == 28.0


def test_prefills_go_with_a_hand_off():
    with pytest.raises(InputError, match="prefills without a hand-off, or the other way round"):
        Served("vllm", (A, B), (A,))
