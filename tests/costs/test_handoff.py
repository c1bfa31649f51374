"""The hand-off of a KV cache."""

from __future__ import annotations

import pytest

from pointsman.core.errors import InputError
from pointsman.costs.handoff import HandoffLink, KvLayout
from pointsman.costs.models import model_named
from pointsman.costs.stages import StageCosts, stages_of

LAYOUT = KvLayout.of(model_named("llama-3.1-8b"))
BLOCK_BYTES = 16 * 131_072


def test_tokens_have_the_bytes_of_the_models_cache():
    assert LAYOUT.token_bytes(1000) == 131_072_000
    eight_bits = KvLayout.of(model_named("llama-3.1-8b"), bytes_per_kv_value=1)
    assert eight_bits.token_bytes(1000) == 65_536_000


def test_only_blocks_that_the_destination_lacks_are_sent():
    assert LAYOUT.missing_bytes(160, held_blocks=4) == 6 * BLOCK_BYTES
    assert LAYOUT.missing_bytes(160) == 10 * BLOCK_BYTES


def test_the_last_block_is_sent_whole():
    assert LAYOUT.missing_blocks(161, held_blocks=10) == 1
    assert LAYOUT.missing_bytes(161, held_blocks=10) == BLOCK_BYTES


def test_a_destination_that_holds_all_gets_nothing():
    assert LAYOUT.missing_bytes(160, held_blocks=10) == 0
    assert LAYOUT.missing_bytes(160, held_blocks=12) == 0
    assert HandoffLink(base_ms=2.0, bytes_per_ms=1e6).time_ms(0) == 0


def test_a_transfer_takes_the_base_and_its_bytes_at_the_rate():
    # 25 GB/s are 25e6 bytes/ms.
    assert HandoffLink(base_ms=0.5, bytes_per_ms=25e6).time_ms(50_000_000) == 2.5


def test_a_transfer_takes_what_the_lessons_ledger_says():
    costs = StageCosts(
        serving_mode="pd_disaggregated",
        kv_bytes_per_token=131_072,
        handoff_base_ms=0.5,
        handoff_bytes_per_ms=25e6,
    )
    link = HandoffLink(costs.handoff_base_ms, costs.handoff_bytes_per_ms)
    assert link.time_ms(LAYOUT.token_bytes(1000)) == stages_of(1000, 10, costs).handoff_ms


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((-1.0, 1.0), "base_ms is -1.0; expected a finite number >= 0"),
        ((0.0, 0.0), "bytes_per_ms is 0.0; expected a finite number > 0"),
        ((0.0, float("nan")), "bytes_per_ms is nan; expected a finite number > 0"),
    ],
)
def test_a_link_that_cannot_be_is_refused(values, message):
    with pytest.raises(InputError) as caught:
        HandoffLink(*values)
    assert message in str(caught.value)
