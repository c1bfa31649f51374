"""Recorded gauges beside simulated requests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pointsman.calibrate.over_time import over_time
from pointsman.calibrate.recording import read_recording
from tests.calibrate.recordings import request, run_folder

HEADER = "t,gen_throughput,running,waiting,kv_cache_pct\n"
# Four requests, of which the third waits until the first one is finished.
ROWS = [
    request(0, 0.0, last_token_ts=53.6),
    request(1, 0.1, last_token_ts=57.6),
    request(2, 1.1, scheduled_ts=53.7, first_token_ts=54.0, last_token_ts=58.6),
    request(3, 8.8, last_token_ts=59.6),
]
GAUGES = HEADER + "1,1,2,0,0\n2,1,2,1,0\n3,1,2,1,0\n4,1,2,0,0\n5,1,2,0,0\n9,1,1,0,0\n"


def test_a_run_does_not_differ_from_itself(tmp_path):
    recording = read_recording(run_folder(tmp_path, ROWS, gauges=GAUGES))
    sides = over_time(recording, recording.times)
    assert sides.running.simulated.tolist() == [2, 2, 2, 2, 2, 1]
    assert sides.waiting.simulated.tolist() == [0, 1, 1, 0, 0, 0]
    assert (sides.running.worst_difference, sides.waiting.worst_difference) == (0.0, 0.0)


def test_differences_are_parts_of_the_most_in_the_engine(tmp_path):
    recording = read_recording(run_folder(tmp_path, ROWS, gauges=GAUGES))
    at_once = replace(recording.times, scheduled_ms=recording.times.arrival_ms)
    sides = over_time(recording, at_once)
    # The third waits at none of the two samples of six at which it did; three were there at most.
    assert sides.waiting.mean_difference == pytest.approx(2 / 6 / 3)
    assert sides.waiting.worst_difference == pytest.approx(1 / 3)
    assert sides.running.worst_difference == pytest.approx(1 / 3)


@pytest.mark.parametrize("gauges", [None, GAUGES.replace(",2,1,", ",9,9,")])
def test_without_gauges_that_fit_the_requests_there_is_nothing_to_compare(tmp_path, gauges):
    recording = read_recording(run_folder(tmp_path, ROWS, gauges=gauges))
    assert over_time(recording, recording.times) is None
