"""The roofline: by hand on a tiny model, and against figures that others published."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from pointsman.calibrate.agreement import agreement
from pointsman.calibrate.recording import read_recording
from pointsman.calibrate.simulated import twin_of
from pointsman.core.errors import InputError
from pointsman.costs.devices import device_named
from pointsman.costs.models import model_named, read_models
from pointsman.costs.roofline import Instance
from tests.costs.shapes import MODEL_FIELDS, SLOW, TINY, toml_of

ALONE = Instance(model=TINY, device=SLOW, max_num_seqs=8, max_num_batched_tokens=10)
GIB = 2**30


def values(costs) -> tuple[float, ...]:
    return msgspec.structs.astuple(costs)


def llama(name: str, device: str, **more) -> Instance:
    return Instance(model=model_named(name), device=device_named(device), **more)


# Two layers of 92 weights and a head of 20, of 2 bytes each: 408 bytes, 240 ms at 1.7 bytes/ms.
# A token's products are 2 x 184 FLOPs, with the head 2 x 204; 7 FLOPs are done in a ms.


def test_one_gpu_reads_its_weights_and_computes_what_is_beyond_them():
    assert values(ALONE.iteration_costs()) == pytest.approx(
        (
            240 + 0.5 + 2 * 0.02,
            368 / 7 - 240 / 10,
            408 / 7 - 240 / 8 + 0.01,
            16 / 1.7,  # key and value, 2 layers, one head of 2, 2 bytes each
            4 * 2 * 2 * 2 / 5,  # score and value, 2 heads of 2, 2 layers, at 5 FLOPs/ms
        )
    )
    assert values(ALONE.communication_costs()) == (0, 0, 0, 0, 0)


def test_two_ranks_halve_the_work_and_reduce_twice_a_layer():
    pair = replace(ALONE, tp=2)
    # A ring over two moves a message of 4 x 2 bytes once; 4 of them at 3 bytes/ms.
    said_ms = 4 * 8 / 3
    assert values(pair.communication_costs()) == pytest.approx((0.04, said_ms, said_ms, 0, 0))
    assert values(pair.iteration_costs()) == pytest.approx(
        (
            120 + 0.54 + 0.04,
            184 / 7 - 120 / 10 + said_ms,
            204 / 7 - 120 / 8 + 0.01 + said_ms,
            16 / 1.7,  # the one KV head has a copy on each
            1.6 * 2,
        )
    )


def test_two_stages_read_their_weights_once_for_each_micro_batch():
    line = replace(ALONE, pp=2)
    # One boundary: hidden state and residual of half the batch, 2 x 4 x 2 bytes at 3 bytes/ms.
    said_ms = 16 / 3 / 2
    assert values(line.communication_costs()) == pytest.approx((0.01, said_ms, said_ms, 0, 0))
    assert values(line.iteration_costs()) == pytest.approx(
        (
            2 * (120 + 0.5 + 0.02) + 0.01,
            184 / 7 - 120 / 5 + said_ms,
            0 + 0.01 + said_ms,  # 204 / 7 - 120 / 4 is below zero: reading takes longer
            8 / 1.7,
            3.2,
        )
    )


def test_one_micro_batch_gains_nothing_from_further_stages():
    line = replace(ALONE, pp=2, micro_batches=1)
    alone, serial = ALONE.iteration_costs(), line.iteration_costs()
    assert line.parallel.bubble_fraction == 0.5
    assert serial.per_kv_token_ms == pytest.approx(alone.per_kv_token_ms)
    assert serial.per_attention_ms == pytest.approx(alone.per_attention_ms)
    assert serial.per_prefill_token_ms == pytest.approx(alone.per_prefill_token_ms + 16 / 3)


def test_more_micro_batches_than_stages_read_the_weights_more_often():
    line = replace(ALONE, pp=2, micro_batches=4)
    assert line.parallel.bubble_fraction == 0
    assert line.iteration_costs().per_iteration_ms == pytest.approx(4 * (120 + 0.52) + 0.01)


def test_stages_on_several_nodes_talk_over_the_network():
    both = replace(ALONE, tp=2, pp=2)  # four GPUs, two a node
    reduces_ms = 2 * 8 / 3  # of one layer, whose micro-batch has half the tokens, in two slots
    transfer_ms = 16 / 1.5 / 2  # at half the rate
    said = both.communication_costs()
    assert said.per_decode_ms == pytest.approx(reduces_ms + transfer_ms)
    assert said.per_iteration_ms == pytest.approx(2 * 2 * 0.01 + 0.01)


def test_the_largest_of_uneven_stages_sets_the_pace():
    three = replace(ALONE, model=msgspec.structs.replace(TINY, layers=3), pp=2)
    assert three.iteration_costs().per_attention_ms == pytest.approx(2 * 1.6 * 2)


def test_weights_of_one_byte_are_read_in_half_the_time_and_computed_at_the_rate_of_fp8():
    small = replace(ALONE, bytes_per_weight=1.0)
    # The head stays in 16 bits: 184 + 40 bytes.
    weights_ms = 224 / 1.7
    costs = small.iteration_costs()
    assert costs.per_iteration_ms == pytest.approx(weights_ms + 0.54)
    assert costs.per_prefill_token_ms == pytest.approx(368 / 14 - weights_ms / 10)


def test_only_the_experts_that_a_batch_touches_are_read():
    experts = msgspec.structs.replace(TINY, experts=4, active_experts=2)
    pair = replace(ALONE, model=experts, expected_batch=2)
    # 3 of 4: layers of 56 + 16 + 3 x 36 weights.
    read_bytes = (2 * 180 + 20) * 2
    assert pair.iteration_costs().per_iteration_ms == pytest.approx(read_bytes / 1.7 + 0.54)


@pytest.mark.parametrize("batch", [1, 16, 64, 128, 200, 256])
def test_the_line_is_never_below_the_roofline_nor_far_above_it(batch):
    instance = llama("llama-3.1-8b", "h100-sxm")
    costs = instance.iteration_costs()
    parameters = 8_030_261_248 - 128_256 * 4096  # all but the embedding are computed with
    reading_ms = 2 * parameters / 3.35e9 / 0.85
    computing_ms = 2 * parameters * batch / 989.4e9 / 0.7
    line_ms = costs.per_iteration_ms + batch * (costs.per_decode_ms - 0.01) - 0.5 - 32 * 0.02
    roofline_ms = max(reading_ms, computing_ms)
    assert roofline_ms * 0.9999 <= line_ms <= roofline_ms * 1.2


def test_a_decode_step_of_one_sequence_takes_what_an_h100_is_known_to_take():
    # Llama-3.1-8B in bf16: 15 GB at 3.35 TB/s are 4.5 ms; engines reach 5 to 8.
    costs = llama("llama-3.1-8b", "h100-sxm").iteration_costs()
    assert 5 <= costs.per_iteration_ms + costs.per_decode_ms <= 8


def test_copies_of_kv_heads_take_memory():
    # 4 KV heads: on 8 ranks each of them twice; 2 x 48 layers x 4 x 128 x 2 bytes.
    four, eight = (llama("qwen3-30b-a3b", "h200", tp=tp) for tp in (4, 8))
    assert (four.kv_bytes_per_token, eight.kv_bytes_per_token) == (98_304, 2 * 98_304)


def test_the_blocks_of_a_recorded_engine_are_met():
    # RTX 4090, vLLM 0.19: num_gpu_blocks 2,588, of which one is the engine's own.
    instance = llama("llama-3.1-8b", "rtx-4090", max_num_batched_tokens=2048)
    assert instance.kv_blocks() == pytest.approx(2587, rel=0.02)


def test_the_memory_for_the_cache_is_what_vllm_logs():
    # Llama-3.1-8B on an H100 of 79.11 GiB, 8,192 batched tokens: "the rest of the memory reserved
    # for KV Cache is 54.62GiB".
    blocks = llama("llama-3.1-8b", "h100-sxm").kv_blocks()
    assert blocks * 16 * 131_072 / GIB == pytest.approx(54.62, rel=0.02)


def test_the_blocks_of_another_model_of_another_engine_version_are_met(tmp_path):
    # Llama-2-7B on an A100 of 80 GB: "# GPU blocks: 7351" (vllm-project/vllm pull 2031); shape of
    # config.json, no grouped queries, batches of at most its 4,096 tokens.
    shape = {
        **MODEL_FIELDS,
        **{"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 32, "head_dim": 128},
        **{"intermediate": 11008, "vocab": 32000, "max_context_tokens": 4096},
    }
    file = tmp_path / "model.toml"
    file.write_text(toml_of("llama-2-7b", shape))
    model = model_named("llama-2-7b", read_models(file))
    a100 = device_named("a100-80gb")
    instance = Instance(model=model, device=a100, max_num_batched_tokens=4096)
    assert instance.kv_blocks() == pytest.approx(7351, rel=0.02)


@pytest.mark.parametrize(
    ("folder", "device"),
    [("rtx4090-llama31-8b", "rtx-4090"), ("rtxpro6000-llama31-8b", "rtx-pro-6000")],
)
def test_recorded_engines_are_within_a_quarter_of_the_roofline(shared, folder, device):
    recording = read_recording(shared(f"realruns/{folder}/requests.jsonl").parent)
    setup = recording.setup
    instance = llama(
        "llama-3.1-8b",
        device,
        max_num_seqs=setup.max_num_seqs,
        max_num_batched_tokens=setup.max_num_batched_tokens,
    )
    simulated = twin_of(recording, 0.0, async_scheduling=False).run(instance.iteration_costs())
    figures = agreement(recording.times, simulated)["tpot_ms"]
    for name, figure in figures.items():
        print(f"{folder} TPOT {name}: {figure.recorded:.1f} ms, {figure.error:+.1%}")
        assert abs(figure.error) <= 0.25, name


def test_what_does_not_fit_says_by_how_much_and_what_would():
    # Weights 131.42 GiB, activations 8,192 x (3 x 28,672 + 2 x 8,192) x 2 bytes = 1.56, 0.6 other;
    # 0.9 of 79.11 GiB is 71.2.
    large = llama("llama-3.1-70b", "h100-sxm")
    assert not large.fits()
    with pytest.raises(InputError) as caught:
        large.kv_blocks()
    assert str(caught.value) == (
        "llama-3.1-70b on h100-sxm: tp=1 pp=1 needs 133.6 GiB a GPU before any KV cache and has"
        " 71.2 GiB, 62.4 GiB too few; tp=2 pp=1 would fit, on 2 GPUs"
    )
    assert replace(large, tp=2).fits()


def test_where_nothing_fits_it_says_so():
    with pytest.raises(InputError, match=r"no tp \* pp of this device would fit"):
        replace(ALONE, gpu_memory_utilization=0.01).kv_blocks()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tp": 3}, "tp is 3; expected a divisor of the 32 heads"),
        ({"tp": 0}, "tp is 0; expected an integer >= 1"),
        ({"tp": 16}, "tp is 16; expected at most 8, the GPUs of a node"),
        ({"pp": 33}, "pp is 33; expected at most 32, the layers"),
        ({"pp": 1.0}, "pp is 1.0; expected an integer >= 1"),
        ({"micro_batches": 0}, "micro_batches is 0; expected an integer >= 1"),
        ({"max_num_seqs": 0}, "max_num_seqs is 0; expected an integer >= 1"),
        ({"expected_batch": -1}, "expected_batch is -1; expected an integer >= 1"),
        ({"bytes_per_weight": 0}, "bytes_per_weight is 0; expected a number in 0..4, not 0"),
        ({"bytes_per_kv_value": 16}, "bytes_per_kv_value is 16; expected a number in 0..4"),
        ({"gpu_memory_utilization": 1.1}, "gpu_memory_utilization is 1.1; expected a number"),
    ],
)
def test_what_cannot_be_is_refused(changed, message):
    with pytest.raises(InputError) as caught:
        llama("llama-3.1-8b", "h100-sxm", **changed)
    assert str(caught.value).startswith("llama-3.1-8b on h100-sxm: ")
    assert message in str(caught.value)


def test_kv_heads_that_cannot_be_dealt_out_are_refused():
    with pytest.raises(InputError, match="tp is 3; expected a divisor or a multiple of the 8 KV"):
        llama("llama-3.2-3b", "h100-sxm", tp=3)


def test_blocks_of_no_tokens_are_refused():
    with pytest.raises(InputError, match="block_size is 0; expected an integer >= 1"):
        llama("llama-3.1-8b", "h100-sxm").kv_blocks(0)
