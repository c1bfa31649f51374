"""Which shapes hold a model, and each as a fleet."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from pointsman import InputError
from pointsman.costs.devices import device_named
from pointsman.costs.models import model_named
from pointsman.costs.roofline import Instance
from pointsman.plan.hardware import Hardware
from pointsman.plan.shapes import KINDS, Shape
from tests.plan import made


def hardware(model: str, device: str, gpus: int) -> Hardware:
    return Hardware(Instance(model=model_named(model), device=device_named(device)), gpus)


def test_what_cannot_hold_the_model_is_dropped_and_counted():
    """70.6e9 weights of 2 bytes are 131 GiB; of two GPUs 71 GiB are usable, of four 142.

    A stage of four, in GiB: weights of 20 layers 31.9 and a table 2.0, an MLP of 8,192 tokens 1.6,
    0.6 for the rest: 36.0 of 35.4. Two ranks share table and MLP: 34.7.
    """
    shapes, dropped = hardware("llama-3.1-70b", "a100-40gb", 4).shapes(KINDS)
    assert {shape.gpus for shape in shapes} == {4}
    # TP1: 4 counts and 6 splits; TP2: 2 counts and 1 split; TP1PP2: 2 counts
    counts = {each.instance: each.shapes for each in dropped}
    assert counts == {"TP1": 10, "TP2": 3, "TP1PP2": 2, "TP1PP4": 1}
    assert "GiB too few" in dropped[0].reason


def test_the_baseline_is_one_replica_on_the_fewest_gpus_that_hold_the_model():
    assert hardware("llama-3.1-8b", "h100", 8).smallest() == Shape(1)
    assert hardware("llama-3.1-70b", "a100-40gb", 8).smallest() == Shape(1, 4)


def test_a_model_that_fits_no_shape_is_one_clear_error():
    with pytest.raises(InputError, match=r"no shape of llama-3.1-405b on 2 l4 can .*GiB"):
        hardware("llama-3.1-405b", "l4", 2).shapes(KINDS)


def test_heads_that_cannot_be_shared_are_no_shape():
    """14 heads: two ranks get seven each, four ranks get no whole number."""
    shapes, dropped = hardware("qwen2.5-0.5b", "h100", 4).shapes(("tp_pp",))
    assert {shape.tp for shape in shapes} == {1, 2}
    assert [(each.instance, each.shapes) for each in dropped] == [("TP4", 1)]


@pytest.mark.parametrize("gpus", [0, -1, 1025, 2.0, True])
def test_an_impossible_number_of_gpus_is_refused(gpus):
    with pytest.raises(InputError, match="gpus is"):
        hardware("llama-3.1-8b", "h100", gpus)


def test_a_kind_that_needs_more_gpus_is_refused():
    with pytest.raises(InputError, match="no shape of the kinds disaggregated; expected more GPUs"):
        hardware("llama-3.1-8b", "h100", 1).shapes(("disaggregated",))
    with pytest.raises(InputError, match="did you mean replicas"):
        hardware("llama-3.1-8b", "h100", 1).shapes(("replica",))


def test_a_deployed_shape_has_its_engines_its_split_and_its_communication():
    eight = hardware("llama-3.1-8b", "h100", 8)
    deployment = eight.deploy(Shape(4, 2, 1, prefill=1))
    assert (len(deployment.fleet.engines), deployment.fleet.split.prefill) == (4, 1)
    assert deployment.communication == eight.instance(2, 1).communication_costs()
    assert deployment.fleet.engines[0].max_model_len == 131072
    with pytest.raises(InputError, match="expected a shape of at most 8 GPUs"):
        eight.deploy(Shape(9))


def test_calibrated_costs_hold_for_the_instance_that_was_recorded_alone():
    shapes, dropped = made.hardware(4).shapes(KINDS)
    assert {(shape.tp, shape.pp) for shape in shapes} == {(1, 1)}
    assert {each.instance for each in dropped} == {"TP2", "TP4", "TP1PP2", "TP2PP2", "TP1PP4"}
    assert "calibrated on TP1" in dropped[0].reason
    costs = made.hardware(4).deploy(Shape(2)).fleet.engines[0].costs
    assert costs == made.COSTS


def test_a_cache_that_was_not_recorded_is_sized_by_the_model_and_the_device():
    known = made.hardware(1)
    engine = msgspec.structs.replace(known.calibrated.engine, kv_blocks=None)
    file = msgspec.structs.replace(known.calibrated, engine=engine)
    deployment = replace(known, calibrated=file).deploy(Shape(1))
    assert deployment.fleet.engines[0].kv_blocks == made.SINGLE.kv_blocks(16)
