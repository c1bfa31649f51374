"""The fleets and the traffic of the bench."""

from __future__ import annotations

import numpy as np
import pytest

from pointsman import InputError, workload_of_columns
from pointsman.cli.policies_bench import DEFAULT_FLEETS, DEFAULT_TRAFFIC
from pointsman.comparison.bench_fleets import FLEETS, fleet_named, fleets_named
from pointsman.comparison.bench_traffic import (
    KINDS,
    GeneratedTrace,
    RecordedTrace,
    recorded_trace,
    traffic_named,
)
from pointsman.workload.statistics import statistics_of


def test_a_number_is_a_fleet_of_so_many_alike():
    fleet = fleet_named("16")
    engines = fleet.assembled(512).engines
    assert (len(engines), len(set(engines)), fleet.size) == (16, 1, 16.0)
    assert engines[0].kv_blocks == 2000


def test_the_mixed_fleet_is_half_slower_ones_with_smaller_caches():
    """4 fast and 4 that prefill at 0.05 / 0.125 = 0.4 of their speed: 5.6 fast ones."""
    fleet = fleet_named("mixed")
    engines = fleet.assembled(128).engines
    fast, slow = engines[0], engines[7]
    assert engines == (fast,) * 4 + (slow,) * 4
    assert slow.costs.per_prefill_token_ms == 2.5 * fast.costs.per_prefill_token_ms
    assert (fast.kv_blocks, slow.kv_blocks) == (8000, 3125)
    assert fleet.size == pytest.approx(5.6)


def test_the_stale_fleet_is_seen_a_second_late():
    signals = fleet_named("stale").conditions.signals
    assert (signals.metrics_age_ms, signals.event_delay_ms) == (1000.0, 1000.0)
    assert fleet_named("8").conditions.signals.metrics_age_ms == 0.0


@pytest.mark.parametrize(("trace", "cache"), [(1, 16), (5, 20), (16, 16), (24, 24), (512, 512)])
def test_small_blocks_are_put_together_to_the_least_size_that_takes_them(trace, cache):
    assert fleet_named("1").assembled(trace).engines[0].block_size == cache


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0", "replicas is 0; expected 1..4096"),
        ("4097", "replicas is 4097"),
        ("mixd", r"fleet 'mixd' is unknown.*did you mean mixed"),
        ("-4", "fleet '-4' is unknown"),
        ("", "fleet '' is unknown"),
        ("4,16,4", "4 is given twice"),
    ],
)
def test_a_fleet_that_is_none_is_one_clear_error(text, message):
    with pytest.raises(InputError, match=message):
        fleets_named(text)


def test_the_commands_defaults_are_all_fleets_and_all_kinds():
    assert tuple(DEFAULT_FLEETS.split(",")) == FLEETS
    assert DEFAULT_TRAFFIC.split(",") == list(KINDS)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_generated_traffic_grows_with_the_fleet_and_lasts_as_long(name):
    small = GeneratedTrace(name).offered(fleet_named("1"), 3.0, seed=0)
    large = GeneratedTrace(name).offered(fleet_named("4"), 3.0, seed=0)
    assert len(large) == 4 * len(small)
    assert large.span_ms == pytest.approx(small.span_ms, rel=0.15)
    assert small.span_ms >= 0.85 * 3 * 60_000
    again = GeneratedTrace(name).offered(fleet_named("1"), 3.0, seed=0)
    assert again.arrival_ms.tobytes() == small.arrival_ms.tobytes()


def test_conversations_grow_in_number_and_not_in_length():
    offered = [GeneratedTrace("turns").offered(fleet_named(n), 3.0, seed=0) for n in ("1", "4")]
    sessions = [workload.session_count for workload in offered]
    assert 3.0 < sessions[1] / sessions[0] < 5.0


def test_kinds_share_what_they_say():
    found = {
        name: statistics_of(GeneratedTrace(name).offered(fleet_named("2"), 3.0, seed=0)).prefix
        for name in KINDS
    }
    assert found.pop("unshared") is None
    ceilings = {name: reuse.hit_ceiling_fraction for name, reuse in found.items()}
    assert min(ceilings["system"], ceilings["turns"]) > 0.6
    assert 0.2 < ceilings["long"] < 0.7


def test_arrivals_recorded_in_steps_are_spread_and_others_left_alone():
    lengths = {"prompt_tokens": np.full(40, 10), "output_tokens": np.full(40, 2)}
    stepped = workload_of_columns(np.repeat(np.arange(10) * 3000.0, 4), **lengths)
    spread = RecordedTrace("t", stepped).offered(fleet_named("1"), 3.0, seed=0)
    assert len(set(spread.arrival_ms.tolist())) == 40
    plain = workload_of_columns(np.arange(40) ** 1.5, **lengths)
    assert RecordedTrace("t", plain).offered(fleet_named("1"), 3.0, seed=0) is plain


def test_a_recorded_trace_needs_prompts_and_answers(tmp_path):
    file = tmp_path / "failed.jsonl"
    file.write_text(
        '{"arrival_ms": 0, "prompt_tokens": 9, "output_tokens": 0, "request_id": "x"}\n'
    )
    with pytest.raises(InputError, match=r"failed\.jsonl: request x has 9 prompt tokens and 0 out"):
        recorded_trace(str(file))


def test_traffic_can_be_none_and_a_misspelt_kind_is_named():
    assert traffic_named("none") == []
    assert [trace.name for trace in traffic_named("long,turns")] == ["long", "turns"]
    with pytest.raises(InputError, match=r"kind 'turn' is unknown.*did you mean turns"):
        traffic_named("turn")
