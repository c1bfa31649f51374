"""What one repeat leaves in an engine's cache is gone for the next one, or the file says so."""

from __future__ import annotations

import contextlib
import io

import pytest

from tests.bench.engines.answering import answering
from tests.bench.experiments import OUTPUT, bench, group_in, one, written


def measured(folder, **engine):
    """Two repeats of one replica; the evidence, and the prompts that it got."""
    with answering(**engine) as served:
        file = written(folder, [one(served)], head="repeats = 2", requests=6)
        with contextlib.redirect_stdout(io.StringIO()):
            assert bench(file) == 0
        return group_in(folder / "results" / "run-1", "g0"), served.prompts(OUTPUT)


def test_where_a_cache_cannot_be_reset_every_repeat_has_prompts_of_its_own_and_says_so(tmp_path):
    group, prompts = measured(tmp_path, is_vllm=False)
    repeats = group["repeats"]
    assert [each["cache"] for each in repeats] == ["carried", "carried"]
    first, second = (each["seed"] for each in repeats)
    assert second == first + 1  # by position
    assert first != 3 + 1
    assert len(prompts) == len(set(prompts)) == 12


def test_what_an_earlier_label_sent_to_the_same_server_is_not_sent_again(tmp_path):
    with answering(is_vllm=False) as served:
        file = written(tmp_path, [one(served)], requests=6, head="repeats = 1")
        with contextlib.redirect_stdout(io.StringIO()):
            assert bench(file) == bench(file) == 0
        prompts = served.prompts(OUTPUT)
    assert len(prompts) == len(set(prompts)) == 12


def test_where_it_is_reset_every_repeat_has_the_same_prompts(tmp_path):
    group, prompts = measured(tmp_path)
    assert [each["cache"] for each in group["repeats"]] == ["reset", "reset"]
    assert sorted(prompts[:6]) == sorted(prompts[6:])
    assert len(set(prompts)) == 6


def test_an_engine_that_is_not_known_has_neither_a_queue_wait_nor_a_version(tmp_path):
    group, _ = measured(tmp_path, is_vllm=False)
    assert group["metrics"]["queue_wait_ms"] is None
    assert group["details"]["queue_wait_ms"]["reason"].startswith("an engine that is not known did")
    assert group["backend"]["version"] is None


@pytest.mark.parametrize("is_vllm", [True, False])
def test_latencies_are_the_clients_whoever_answers(tmp_path, is_vllm):
    group, _ = measured(tmp_path, is_vllm=is_vllm)
    assert group["statuses"]["ok"] == 12
    assert group["metrics"]["ttft_ms"] > 0
    assert group["details"]["ttft_ms"]["source"].startswith("the client: stamps at the socket")
