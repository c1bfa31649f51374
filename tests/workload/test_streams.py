from __future__ import annotations

from pointsman.workload.streams import stream


def test_a_stream_is_a_function_of_seed_and_name():
    assert stream(1, "a").random(3).tolist() == stream(1, "a").random(3).tolist()


def test_names_and_seeds_tell_streams_apart():
    draws = {stream(seed, name).random() for seed in (0, 1) for name in ("a", "b")}
    assert len(draws) == 4
