"""The blocks that prompts share, from what the gauges saw."""

from __future__ import annotations

import math

import pytest

from pointsman.calibrate.recording import read_recording
from pointsman.calibrate.sharing import estimate_sharing
from tests.calibrate.recordings import META, request, run_folder

RUNNING, SECONDS, CAPACITY = 8, 30, 1000
HEADER = "t,gen_throughput,running,waiting,kv_cache_pct\n"


def shared_run(folder, shared: int, **cache):
    """Eight requests at once, ten tokens a second each, of which so many blocks are shared."""
    rows = [
        request(
            i,
            0.0,
            input_toks=100 + 7 * i,
            output_toks=300,
            queued_ts=50.0 + 0.01 * i,
            last_token_ts=90.5,
        )
        for i in range(RUNNING)
    ]
    lines = []
    for second in range(1, SECONDS + 1):
        each = 10 * second
        blocks = sum(math.ceil((100 + 7 * i + each - 1) / 16) for i in range(RUNNING))
        used = max(1, blocks - shared * (RUNNING - 1))
        lines.append(f"{second},{10 * RUNNING},{RUNNING},0,{100 * used / CAPACITY}\n")
    meta = {**META, "kv_cache": {"num_gpu_blocks": CAPACITY + 1, "block_size": 16, **cache}}
    # One more, long after: samples count until the last of the fitted is scheduled.
    rows.append(request(RUNNING, 35.0, output_toks=1))
    return read_recording(run_folder(folder, rows, meta, HEADER + "".join(lines)))


@pytest.mark.parametrize("shared", [0, 1, 2, 6])
def test_what_the_gauges_lack_is_shared(tmp_path, shared):
    found = estimate_sharing(shared_run(tmp_path, shared), RUNNING + 1)
    assert found.blocks == pytest.approx(shared, abs=0.15)
    assert found.samples == SECONDS


def test_more_than_eight_is_not_believed(tmp_path):
    assert estimate_sharing(shared_run(tmp_path, 20), RUNNING + 1).blocks == 8.0


def test_nothing_is_shared_without_a_prefix_cache(tmp_path):
    recording = shared_run(tmp_path, 2, enable_prefix_caching=False)
    assert estimate_sharing(recording, RUNNING + 1).blocks == 0.0


def test_without_a_known_capacity_nobody_knows(tmp_path):
    assert estimate_sharing(shared_run(tmp_path, 2, num_gpu_blocks=None), RUNNING + 1) is None


def test_samples_after_the_fitted_part_are_not_looked_at(tmp_path):
    assert estimate_sharing(shared_run(tmp_path, 2), RUNNING) is None


def test_gauges_that_contradict_the_requests_are_not_believed(tmp_path):
    shared_run(tmp_path, 2)
    path = tmp_path / "timeseries.csv"
    text = path.read_text()
    for right, wrong in ((f",{10 * RUNNING},", ",30,"), (f",{RUNNING},0,", f",{RUNNING},9,")):
        path.write_text(text.replace(right, wrong))
        assert estimate_sharing(read_recording(tmp_path), RUNNING + 1) is None
