"""The stepping oracle of the batching replica, held against cases worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import batching_oracle
from tests.batching_cases import CASES, Case
from tests.batching_oracle import Arrival, Engine, Result, run
from tests.priority_cases import PRIORITIES

# Few distinct times, tokens and ids, so that ties, shared prefixes and evictions are common.
COARSE_COST = st.integers(0, 8).map(lambda eighth: eighth / 8)
CHAINS = st.integers(0, 2).flatmap(
    lambda root: st.integers(0, 4).map(lambda length: tuple(10 * root + i for i in range(length)))
)


ALL = [*CASES, *PRIORITIES]


@pytest.mark.parametrize("case", ALL, ids=[name for name, *_ in ALL])
def test_hand_worked(case: Case):
    _, engine, arrivals, expected = case
    assert run(engine, arrivals) == expected


@st.composite
def engines(draw) -> Engine:
    return Engine(
        max_num_seqs=draw(st.integers(1, 5)),
        max_num_batched_tokens=draw(st.integers(1, 16)),
        capacity_blocks=draw(st.integers(1, 8)),
        block_size=draw(st.integers(1, 4)),
        reserve_full=draw(st.booleans()),
        costs=tuple(draw(COARSE_COST) for _ in range(5)),
    )


arrivals_in_order = st.lists(
    st.builds(
        Arrival,
        time_ms=st.integers(0, 40).map(float),
        prompt=st.integers(1, 12),
        output=st.integers(1, 8),
        chain=CHAINS,
    ),
    max_size=12,
).map(lambda arrivals: sorted(arrivals, key=lambda arrival: arrival.time_ms))


@settings(max_examples=300, deadline=None)
@given(engine=engines(), arrivals=arrivals_in_order)
def test_everything_that_fits_finishes(engine: Engine, arrivals: list[Arrival]):
    """The invariants are asserted on the way, at every start and end of an iteration."""
    for arrival, result in zip(arrivals, run(engine, arrivals), strict=True):
        tokens = arrival.prompt + arrival.output - 1
        if tokens > engine.capacity_blocks * engine.block_size:
            assert result == Result("rejected")
            continue
        assert result.status == "finished"
        assert arrival.time_ms <= result.scheduled_ms <= result.first_token_ms <= result.finish_ms
        assert result.cached_tokens % engine.block_size == 0
        assert result.cached_tokens < arrival.prompt


def test_it_stops_at_its_event_budget(monkeypatch):
    monkeypatch.setattr(batching_oracle, "EVENT_BUDGET", 3)
    _, engine, arrivals, _ = CASES[0]
    with pytest.raises(RuntimeError, match="no end after 3 events"):
        run(engine, arrivals)
