"""A description becomes engines, a block size and a split."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pointsman import InputError, workload_of_columns
from pointsman.costs.calibrated import read_calibrated
from pointsman.costs.devices import device_named
from pointsman.costs.models import model_named
from pointsman.costs.roofline import Instance
from pointsman.fleet.description import FleetDescription, Link
from pointsman.fleet.groups import Group, Limits, Recorded
from tests.fleet.cost_files import write_costs

PLAIN = workload_of_columns([0.0], prompt_tokens=[10], output_tokens=[5])
H100 = Instance(model=model_named("llama-3.1-8b"), device=device_named("h100-sxm"))
L4 = replace(H100, device=device_named("l4"), model=model_named("llama-3.1-8b"), tp=4)


def chained(block_size_tokens: int):
    return workload_of_columns(
        [0.0],
        prompt_tokens=[2 * block_size_tokens],
        output_tokens=[5],
        chain_start=[0, 2],
        chain_blocks=[0, 1],
        block_size_tokens=block_size_tokens,
    )


def recorded(folder, **engine) -> Recorded:
    path = write_costs(folder / "costs.json", engine=engine)
    return Recorded(str(path), read_calibrated(path))


def size_of(fleet: FleetDescription, workload) -> int:
    return fleet.assembled(workload).engines[0].block_size


def test_blocks_are_the_traces_where_those_are_larger_than_16_tokens(tmp_path):
    fleet = FleetDescription(groups=(Group(count=1, hardware=H100),))
    assert size_of(fleet, PLAIN) == 16
    assert size_of(fleet, chained(512)) == 512
    assert size_of(fleet, chained(8)) == 16
    assert size_of(replace(fleet, block_size=64), chained(512)) == 64
    of_file = FleetDescription(groups=(Group(count=1, hardware=recorded(tmp_path, block_size=32)),))
    assert size_of(of_file, PLAIN) == 32


def test_a_prefix_key_is_no_block_size():
    keyed = workload_of_columns(
        [0.0],
        prompt_tokens=[100],
        output_tokens=[5],
        chain_start=[0, 1],
        chain_blocks=[0],
        prefix_tokens=[100],
    )
    assert size_of(FleetDescription(groups=(Group(count=1, hardware=H100),)), keyed) == 16


def test_recorded_blocks_are_cut_into_whole_blocks_of_another_size(tmp_path):
    """100 blocks of 16 tokens are 1,600 tokens: 50 of 32, and 3 of 512."""
    group = Group(count=1, hardware=recorded(tmp_path))
    assert [group.engine(size).kv_blocks for size in (16, 32, 512)] == [100, 50, 3]
    with pytest.raises(InputError, match=r"100 KV blocks of 16 tokens are less than one of 2048"):
        group.engine(2048)


def test_blocks_that_are_given_are_counted_in_the_size_that_is_run(tmp_path):
    group = Group(count=1, hardware=recorded(tmp_path), limits=Limits(kv_blocks=7))
    assert group.engine(512).kv_blocks == 7
    unknown = Group(count=1, hardware=recorded(tmp_path, kv_blocks=None))
    with pytest.raises(InputError, match="expected kv_blocks of the group, or --kv-blocks N"):
        unknown.engine(16)
    given = replace(unknown, limits=Limits(kv_blocks=7))
    assert given.engine(16).kv_blocks == 7


def test_limits_of_a_recorded_engine_can_be_changed(tmp_path):
    limits = Limits(max_num_seqs=3, max_num_batched_tokens=99, max_model_len=50)
    engine = Group(count=1, hardware=recorded(tmp_path), limits=limits).engine(16)
    assert (engine.max_num_seqs, engine.max_num_batched_tokens, engine.max_model_len) == (3, 99, 50)


def test_an_instance_takes_no_more_than_the_models_context():
    assert Group(count=1, hardware=H100).engine(16).max_model_len == 131_072


def test_prefill_replicas_come_first_whatever_the_order():
    decode = Group(count=2, hardware=L4, role="decode")
    prefill = Group(count=1, hardware=H100, role="prefill")
    fleet = FleetDescription(groups=(decode, prefill)).assembled(PLAIN)
    assert fleet.split.prefill == 1
    assert fleet.engines[0].costs == H100.iteration_costs()
    assert fleet.engines[1].costs == fleet.engines[2].costs == L4.iteration_costs()


def test_the_hand_off_goes_over_the_slower_link_of_the_two():
    """Llama 3.1 8B keeps 2 x 32 layers x 8 heads x 128 x 2 bytes a token; an L4 has 32 GB/s."""
    groups = (
        Group(count=1, hardware=H100, role="prefill"),
        Group(count=1, hardware=L4, role="decode"),
    )
    split = FleetDescription(groups=groups).assembled(PLAIN).split
    assert (split.kv_bytes_per_token, split.bytes_per_ms) == (131_072, 32e6)
    link = Link(gb_per_s=12.5, base_ms=3.0, kv_bytes_per_token=1000.0)
    given = FleetDescription(groups=groups, link=link).assembled(PLAIN).split
    assert (given.kv_bytes_per_token, given.bytes_per_ms, given.base_ms) == (1000.0, 12.5e6, 3.0)


def test_recorded_engines_need_a_link_that_is_described(tmp_path):
    file = recorded(tmp_path)
    groups = tuple(Group(count=1, hardware=file, role=role) for role in ("prefill", "decode"))
    with pytest.raises(InputError, match=r"expected gb_per_s and kv_bytes_per_token in \[link\]"):
        FleetDescription(groups=groups).assembled(PLAIN)
    link = Link(gb_per_s=10, kv_bytes_per_token=1000)
    split = FleetDescription(groups=groups, link=link).assembled(PLAIN).split
    assert split.bytes_per_ms == 10e6


def test_one_model_does_not_decode_for_another():
    other = replace(H100, model=model_named("qwen3-8b"))
    groups = (
        Group(count=1, hardware=H100, role="prefill"),
        Group(count=1, hardware=other, role="decode"),
    )
    with pytest.raises(InputError, match=r"llama-3.1-8b, qwen3-8b; expected one model"):
        FleetDescription(groups=groups).assembled(PLAIN)


def test_a_model_that_does_not_fit_is_refused_with_what_would():
    large = replace(H100, model=model_named("llama-3.1-70b"))
    fleet = FleetDescription(groups=(Group(count=1, hardware=large),))
    with pytest.raises(InputError, match=r"tp=1 pp=1 needs .* GiB too few; tp=\d pp=\d would fit"):
        fleet.assembled(PLAIN)
