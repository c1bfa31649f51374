"""Replicas over time in a sentence."""

from __future__ import annotations

from pointsman.comparison.over_time import OverTime, ReplicaOverTime
from pointsman.report.over_time import over_time_sentence

IDLE = ReplicaOverTime(running=(0, 0, 0), waiting=(0, 0, 0), kv_used_fraction=(0.0, 0.0, 0.0))
BUSY = ReplicaOverTime(running=(0, 2, 2), waiting=(0, 0, 7), kv_used_fraction=(0.0, 0.5, 0.5))


def test_the_first_instant_of_the_most_is_named():
    text = over_time_sentence("mine", OverTime(2000.0, (IDLE, BUSY)))
    assert text == (
        "mine over time, every 2 s: 7 waiting at most (replica 1 at 4 s),"
        " 50.0% of a cache used at most (replica 1 at 2 s)"
    )


def test_where_nothing_happens_no_place_is_named():
    text = over_time_sentence("mine", OverTime(2000.0, (IDLE,)))
    assert text == "mine over time, every 2 s: nobody waiting, no cache used"
