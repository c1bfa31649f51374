"""What a plan says of caches that thrash and of costs from another engine."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from pointsman import InputError, workload_of_columns
from pointsman.plan.advice import advise
from pointsman.plan.parallel import Workers
from pointsman.plan.plan import How, make_plan
from pointsman.plan.warnings import plan_warnings
from pointsman.report.plan_document import plan_document
from pointsman.workload.reading import ReadOptions
from tests.plan import made

WHOLE = How(kinds=("replicas",), workers=Workers(jobs=1))
REMARK = "That rests on costs of another engine than the one that will serve"


def planned(hardware, workload=None):
    return make_plan((workload or made.steady(20.0),), hardware, made.question(), WHOLE)


def served_by(hardware, version: str | None, recorded: str | None = "0.19.0", **engine):
    """The hardware, whose costs were recorded on one version, and what will serve."""
    file = hardware.calibrated
    facts = msgspec.structs.replace(file.engine, version=recorded, **engine)
    return replace(
        hardware, calibrated=msgspec.structs.replace(file, engine=facts), engine_version=version
    )


def three_in_turn(requests: int = 400):
    """Three prompts of six blocks and four tokens, one after the other."""
    chains = [range(6 * (k % 3), 6 * (k % 3) + 6) for k in range(requests)]
    return workload_of_columns(
        20.0 * np.arange(requests),
        prompt_tokens=np.full(requests, 100),
        output_tokens=np.full(requests, 1),
        chain_start=6 * np.arange(requests + 1),
        chain_blocks=[block for chain in chains for block in chain],
        block_size_tokens=16,
    )


def test_a_shape_whose_working_set_is_beyond_the_cache_is_flagged():
    """Ten blocks, seven a prompt, the oldest go first: of each that comes again 96 of 100 tokens
    are computed again. Of 400, three are new to one replica, and three to each of two."""
    plan = planned(made.hardware(2, kv_blocks=10), three_in_turn())
    (warning,) = plan_warnings(plan)
    assert "1xTP1 95.3%" in warning
    assert "2xTP1 94.6%" in warning
    document = plan_document(plan, ReadOptions())
    assert document["warnings"] == [warning]
    assert document["baseline"]["metrics"]["recomputed_token_fraction"] == 397 * 96 / 40_000


def test_with_room_for_all_nothing_is_flagged():
    assert plan_warnings(planned(made.hardware(2, kv_blocks=21), three_in_turn())) == ()


def test_costs_of_another_engine_version_are_warned_of_in_document_and_verdict():
    plan = planned(served_by(made.hardware(2), "0.20.1"))
    warning = "costs: engine version is 0.20.1 and the costs were fitted to 0.19.0"
    assert plan_warnings(plan) == (warning,)
    assert plan_document(plan, ReadOptions())["warnings"] == [warning]
    assert REMARK in advise(plan).sentence


def test_costs_of_another_engine_model_are_warned_of():
    plan = planned(served_by(made.hardware(2), None, model="vllm-v0"))
    assert plan_warnings(plan) == (
        "costs: engine model is vllm-v1 and the costs were fitted to vllm-v0",
    )


@pytest.mark.parametrize("version", ["0.19.0", "v0.19.0", None])
def test_the_same_engine_is_not_warned_of(version):
    plan = planned(served_by(made.hardware(2), version))
    assert plan_warnings(plan) == ()
    assert REMARK not in advise(plan).sentence


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"calibrated": None, "engine_version": "0.19.0"}, "expected none without calibrated"),
        ({"engine_version": " "}, "expected a version such as 0.19.0"),
    ],
)
def test_a_version_that_nothing_can_be_held_against_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        replace(made.hardware(2), **changes)
