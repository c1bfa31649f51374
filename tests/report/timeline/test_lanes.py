"""Lanes and counters, against a look at every instant."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pointsman.report.timeline import counters
from pointsman.report.timeline.counters import counted
from pointsman.report.timeline.lanes import NO_LANE, lanes_of
from pointsman.report.timeline.story import Stage, Stay, Story

# Of quarters, so that ends and begins coincide often.
SPANS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 12), st.integers(0, 1)), min_size=1, max_size=60
)


def stay_of(spans: list[tuple[int, int, int]]) -> Stay:
    begin_ms = np.array([begin / 4 for begin, _, _ in spans])
    end_ms = np.array([(begin + length) / 4 for begin, length, _ in spans])
    place = np.array([place for _, _, place in spans], dtype=np.int64)
    return Stay(place, (Stage("any", "#", begin_ms, end_ms),), runs=True)


def depth(spans: list[tuple[int, int, int]], place: int, instant: float) -> int:
    """How many are there just after a quarter."""
    return sum(p == place and b <= instant < b + length for b, length, p in spans)


@given(SPANS)
def test_no_two_spans_of_a_lane_overlap(spans):
    lanes = lanes_of(stay_of(spans), len(spans), 1000).tolist()
    for k, (begin, length, place) in enumerate(spans):
        for j, (other, more, there) in enumerate(spans[:k]):
            if lanes[j] == lanes[k] and there == place:
                assert begin >= other + more or other >= begin + length


@given(SPANS)
def test_there_are_no_more_lanes_than_spans_at_the_busiest_instant(spans):
    lasting = [(begin, length + 1, place) for begin, length, place in spans]
    lanes = lanes_of(stay_of(lasting), len(lasting), 1000)
    for place in (0, 1):
        here = [int(lane) for lane, span in zip(lanes, lasting, strict=True) if span[2] == place]
        busiest = max(depth(lasting, place, instant) for instant in range(60))
        assert len(set(here)) == busiest


@given(SPANS)
def test_who_finds_no_lane_has_none_and_the_others_keep_theirs(spans):
    lasting = [(begin, length + 1, place) for begin, length, place in spans]
    lanes = lanes_of(stay_of(lasting), len(lasting), 2)
    assert set(lanes.tolist()) <= {NO_LANE, 0, 1}
    assert (lanes == NO_LANE).any() == any(
        depth(lasting, place, instant) > 2 for place in (0, 1) for instant in range(60)
    )


@given(SPANS)
def test_counts_are_those_of_every_instant(spans):
    story = Story("any", ("a", "b"), ["r"] * len(spans), (stay_of(spans),))
    for place in (0, 1):
        at_ms, numbers = counted(story, place, runs=True)
        assert [int(n) for n in numbers] == [depth(spans, place, 4 * at) for at in at_ms.tolist()]


def test_where_counts_change_too_often_the_highest_of_each_span_stays():
    """A request a ms for half a ms; at 7,000.25 to 7,000.5 a second one: the only two."""
    begin_ms = np.append(np.arange(10_000.0), 7000.25)
    stage = Stage("any", "#", begin_ms, np.append(np.arange(10_000.0) + 0.5, 7000.5))
    story = Story(
        "any", ("a",), ["r"] * 10_001, (Stay(np.zeros(10_001, np.int64), (stage,), True),)
    )
    at_ms, numbers = counted(story, 0, runs=True)
    assert at_ms.size == counters.MOST_POINTS
    (busiest,) = np.flatnonzero(numbers == 2)
    assert at_ms[busiest] <= 7000.25 < at_ms[busiest + 1]
    assert set(numbers[:-1].tolist()) == {1.0, 2.0}
    assert numbers[-1] == 0
