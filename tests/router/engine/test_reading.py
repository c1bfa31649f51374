"""Every engine's page gives its values, and what it does not tell is unknown."""

from __future__ import annotations

import pytest

from pointsman.core.errors import InputError
from pointsman.router.engine.names import ENGINES, WANTED, names_in
from pointsman.router.engine.reading import EngineReading, reading_of
from pointsman.router.engine.slots import kv_use_of_slots
from tests.router.engine.fixture_pages import FOLDER, PAGES, page


def test_old_vllm_is_read_by_its_old_names():
    assert reading_of(page("vllm_v0.txt")) == EngineReading(
        engine="vllm",
        waiting_requests=2,
        running_requests=5,
        kv_use=0.375,
        prompt_tokens=4096,
        generated_tokens=1_234_500,
        preemptions=3,
        kv_blocks=7419,
        block_tokens=16,
    )


def test_of_two_engines_behind_new_vllm_counts_are_sums_and_kv_use_is_the_fullest():
    assert reading_of(page("vllm_v1.txt")) == EngineReading(
        engine="vllm",
        waiting_requests=17,
        running_requests=11,
        kv_use=0.9375,
        prefix_cache_queries=40_000,
        prefix_cache_hits=30_000,
        cached_tokens=30_000,
        prompt_tokens=41_000,
        generated_tokens=7500,
        preemptions=2,
        kv_blocks=1024,
        block_tokens=32,
    )


def test_a_name_beside_its_successor_is_not_counted_twice():
    assert reading_of(page("vllm_v1_renaming.txt")) == EngineReading(
        engine="vllm",
        waiting_requests=0,
        running_requests=4,
        kv_use=0.5,
        prefix_cache_queries=1000,
        prefix_cache_hits=250,
    )


def test_of_sglang_data_parallel_ranks_add_up_and_ranks_of_one_scheduler_do_not():
    assert reading_of(page("sglang.txt")) == EngineReading(
        engine="sglang",
        waiting_requests=5,
        running_requests=16,
        kv_use=0.28,
        cached_tokens=2500,
        prompt_tokens=10_000,
        generated_tokens=750,
        preemptions=7,
        kv_blocks=8192,
        block_tokens=16,
    )


def test_parts_of_a_counter_that_has_no_total_add_up():
    # Each request brings its priority; those without one are counted apart (SGLang 0.5.23).
    text = (
        'sglang:prompt_tokens_total{priority=""} 100\nsglang:prompt_tokens_total{priority="3"} 20\n'
    )
    assert reading_of(text).prompt_tokens == 120


def test_pages_of_older_sglang_stand_in_labels():
    text = page("sglang.txt").replace("sglang:num_pages", "x").replace("sglang:page_size", "y")
    text += 'sglang:cache_config_info{dp_rank="0",num_pages="4096",page_size="16"} 1.0\n'
    reading = reading_of(text)
    assert (reading.kv_blocks, reading.block_tokens) == (4096, 16)


def test_llama_cpp_is_read_and_its_prompt_tokens_are_with_the_cached_ones():
    assert reading_of(page("llamacpp.txt")) == EngineReading(
        engine="llama.cpp",
        waiting_requests=3,
        running_requests=8,
        cached_tokens=799,
        prompt_tokens=3209 + 799,
        generated_tokens=8,
    )


def test_prompt_tokens_of_old_llama_cpp_are_unknown_for_it_does_not_tell_the_cached_ones():
    assert reading_of(page("llamacpp_2024.txt")) == EngineReading(
        engine="llama.cpp",
        waiting_requests=1,
        running_requests=2,
        kv_use=0.25,
        generated_tokens=340,
    )


def test_a_page_of_nobody_we_know_is_all_unknown():
    assert reading_of("process_cpu_seconds_total 3.5\n") == EngineReading()
    assert reading_of("") == EngineReading()


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf"])
def test_a_count_that_is_none_is_unknown(value):
    text = f'vllm:num_requests_running{{engine="0"}} {value}\nvllm:num_requests_waiting 3\n'
    assert reading_of(text) == EngineReading(engine="vllm", waiting_requests=3)


def test_what_one_of_two_engines_does_not_know_is_unknown_for_both():
    text = 'vllm:num_requests_running{engine="0"} NaN\nvllm:num_requests_running{engine="1"} 2\n'
    assert reading_of(text).running_requests is None


@pytest.mark.parametrize("value", ["1.3", "99", "NaN", "-1"])
def test_a_kv_use_outside_of_0_to_1_is_unknown_and_not_clipped(value):
    assert reading_of(f"vllm:kv_cache_usage_perc {value}\n").kv_use is None


def test_a_number_of_blocks_that_is_not_known_yet_is_unknown():
    text = 'vllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1.0\n'
    assert reading_of(text) == EngineReading(engine="vllm", block_tokens=16)


def test_the_engine_is_the_one_most_of_whose_names_are_there():
    text = page("sglang.txt") + 'vllm:num_requests_running{engine="0"} 9\n'
    assert reading_of(text).engine == "sglang"
    assert reading_of(text).running_requests == 16


def test_a_page_that_is_cut_is_refused():
    whole = page("vllm_v1.txt")
    cut = whole[: whole.index(" 0.9375")]
    with pytest.raises(InputError, match="metrics line"):
        reading_of(cut)


def test_every_name_has_a_source_and_belongs_to_one_engine():
    for names in ENGINES:
        assert all(way.source for ways in names.told.values() for way in ways)
        assert all(label.source for labels in names.in_labels.values() for label in labels)
    assert len(WANTED) == sum(len(names_in(names)) for names in ENGINES)


def test_every_quantity_is_a_field_of_a_reading():
    fields = set(EngineReading.__slots__)
    for names in ENGINES:
        assert set(names.told) | set(names.in_labels) <= fields


@pytest.mark.parametrize("name", PAGES)
def test_prometheus_own_parser_finds_the_same_samples(name):
    parser = pytest.importorskip(
        "prometheus_client.parser", reason="prometheus_client is not installed"
    )
    from pointsman.core.metrics_page import samples_of

    theirs = [
        (sample.name, sample.labels, sample.value)
        for family in parser.text_string_to_metric_families(page(name))
        for sample in family.samples
        if sample.name in WANTED
    ]
    ours = [(sample.name, sample.labels, sample.value) for sample in samples_of(page(name), WANTED)]
    assert len(ours) == len(theirs) > 0
    assert all(sample in theirs for sample in ours)


# llama.cpp's slots.


def test_kv_use_of_llama_cpp_is_what_busy_slots_hold_of_all_contexts():
    # 5 * 486 + 485 + 487 + 557 tokens in 8 contexts of 4,096.
    body = (FOLDER / "llamacpp_slots.json").read_bytes()
    assert kv_use_of_slots(body) == 3959 / 32768


def test_an_idle_slot_holds_nothing_and_one_never_used_is_none_the_less_capacity():
    body = b"""[{"id":0,"n_ctx":100,"is_processing":true,"n_prompt_tokens":30},
        {"id":1,"n_ctx":100,"is_processing":false,"n_prompt_tokens":80},
        {"id":2,"n_ctx":100,"is_processing":false}]"""
    assert kv_use_of_slots(body) == 0.1


@pytest.mark.parametrize("body", [b"[]", b'[{"n_ctx":100,"is_processing":true}]'])
def test_slots_that_do_not_say_leave_it_unknown(body):
    assert kv_use_of_slots(body) is None


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b"[" * 5000, b'{"error":"disabled"}'])
def test_what_is_no_list_of_slots_is_refused(body):
    with pytest.raises(InputError, match=r"/slots: .*expected llama.cpp's list of slots"):
        kv_use_of_slots(body)
