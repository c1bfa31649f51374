"""What a few requests before a load tell of the router and of a hand-off; worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pointsman.bench.foretelling import behind, handoff_of
from pointsman.bench.prediction.calibrated import Calibrated
from pointsman.bench.probing import PROBES, MeasuredHandoff, Probed, probed_of, probes_of
from pointsman.bench.stages.rows import JoinedRow
from pointsman.workload.workload import workload_of_columns


def row(number: int, **joined) -> JoinedRow:
    return JoinedRow(
        number=number,
        request_id=f"probe-{number}",
        asked_prompt_tokens=100,
        asked_output_tokens=4,
        intended_ms=0.0,
        status="ok",
        **joined,
    )


def pair(number: int, tokens: int, took_ms: float) -> JoinedRow:
    """Of 2,000 bytes a token."""
    return row(number, prompt_tokens=tokens, handoff_bytes=2000.0 * tokens, handoff_ms=took_ms)


def test_the_router_and_the_wait_of_a_pair_are_medians():
    rows = [
        row(k, router_ms=router_ms, decode_wait_ms=wait_ms)
        for k, (router_ms, wait_ms) in enumerate([(1.0, 8.0), (90.0, 9.0), (2.0, None)])
    ]
    found = probed_of(rows)
    assert (found.router_ms, found.decode_wait_ms) == (2.0, 8.5)
    assert found.handoff is None
    assert probed_of([row(0)]) == Probed(None, None, None)


def test_a_hand_off_is_a_base_and_a_rate():
    # 3 ms, and 1,000 bytes a ms: 2 ms a token.
    found = probed_of(
        [pair(k, tokens, 3.0 + 2.0 * tokens) for k, tokens in enumerate((5, 10, 20, 40))]
    )
    assert found.handoff.base_ms == pytest.approx(3.0)
    assert found.handoff.bytes_per_ms == pytest.approx(1000.0)
    assert found.handoff.bytes_per_token == 2000.0


def test_without_a_base_the_line_goes_through_nothing():
    # Less than nothing at no bytes: 2 ms a token less 4.
    tokens = np.array([5.0, 10.0, 20.0, 40.0])
    took = 2.0 * tokens - 4.0
    found = probed_of(
        [pair(k, int(n), t) for k, (n, t) in enumerate(zip(tokens, took, strict=True))]
    )
    moved = 2000.0 * tokens
    assert found.handoff.base_ms == 0.0
    assert found.handoff.bytes_per_ms == pytest.approx((moved**2).sum() / (moved * took).sum())


@pytest.mark.parametrize("took_ms", [(9.0, 8.0, 7.0, 4.0), (6.0, 8.0, 7.0, 7.0)])
def test_what_does_not_grow_with_bytes_is_a_base_alone(took_ms):
    lengths = (5, 10, 20, 40) if took_ms[0] > took_ms[-1] else (10, 10, 10, 10)
    rows = [pair(k, *each) for k, each in enumerate(zip(lengths, took_ms, strict=True))]
    assert probed_of(rows).handoff.base_ms == pytest.approx(7.0)
    assert probed_of(rows).handoff.bytes_per_ms == 1e12


def test_too_few_hand_offs_tell_nothing():
    assert probed_of([pair(k, 10 * (k + 1), 5.0) for k in range(3)]).handoff is None


def test_probes_are_as_long_as_the_workloads_prompts():
    workload = workload_of_columns(
        np.arange(5.0), prompt_tokens=[100, 200, 300, 400, 1000], output_tokens=[50] * 5
    )
    found = probes_of(workload)
    assert len(found) == PROBES
    assert (found.prompt_tokens.min(), found.prompt_tokens.max()) == (100, 1000)
    assert not found.chain_blocks.size  # each has text of its own


def test_a_group_behind_a_router_is_predicted_with_what_that_takes():
    costs = Calibrated(None, None, None, 4.0, 1, None, (), has_router=False)
    seen = Probed(1.5, 6.0, MeasuredHandoff(3.0, 1000.0, 2000.0))
    found = behind(costs, seen)
    assert found == replace(costs, overhead_ms=11.5, has_router=True)
    assert behind(costs, Probed(None, None, None)) == costs
    moved = handoff_of(seen)
    assert (moved.base_ms, moved.bytes_per_ms, moved.kv_bytes_per_token) == (3.0, 1000.0, 2000.0)
    assert handoff_of(Probed(1.5, None, None)) is None
