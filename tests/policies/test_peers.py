"""Peers' rules on views worked out by hand from their published formulas."""

from __future__ import annotations

import pytest

from tests.policies.views import choose, spread

# sglang cache_aware: gate max - min > 64 and max > 1.5 min, then match > 0.3, then least load.


def test_cache_aware_leaves_the_cache_when_loads_are_far_apart():
    given = {"requests": (0, 65, 3), "cached": (0, 96, 0)}
    assert choose("sglang_cache_aware", **given) == (0, "imbalanced")


def test_cache_aware_calls_a_gap_of_exactly_64_balanced():
    given = {"requests": (0, 64, 3), "cached": (0, 96, 0)}
    assert choose("sglang_cache_aware", **given) == (1, "prefix_match")


def test_cache_aware_calls_a_ratio_of_exactly_one_and_a_half_balanced():
    """300 and 200 differ by 100 > 64, but 300 > 1.5 x 200 is false; 301 is beyond it."""
    assert choose("sglang_cache_aware", requests=(200, 300), cached=(0, 96))[0] == 1
    assert choose("sglang_cache_aware", requests=(200, 301), cached=(0, 96)) == (0, "imbalanced")


@pytest.mark.parametrize(
    ("cached", "expected"), [(30, (1, "least_load")), (31, (2, "prefix_match"))]
)
def test_cache_aware_wants_more_than_three_tenths_of_the_prompt(cached, expected):
    assert choose("sglang_cache_aware", requests=(4, 2, 9), cached=(0, 0, cached)) == expected


def test_cache_aware_takes_the_lowest_index_of_equal_loads():
    assert choose("sglang_cache_aware", requests=(4, 2, 2), cached=(0, 0, 0))[0] == 1
    assert choose("sglang_cache_aware", requests=(99, 2, 2), cached=(96, 0, 0))[0] == 1


def test_cache_aware_takes_the_fewest_requests_of_equal_matches():
    given = {"requests": (9, 4, 0), "cached": (80, 80, 64)}
    assert choose("sglang_cache_aware", **given) == (1, "prefix_match")
    alike = {"requests": (9, 4, 4), "cached": (0, 80, 80)}
    assert choose("sglang_cache_aware", **alike) == (1, "prefix_match")


def test_cache_aware_without_a_length_takes_the_least_load():
    given = {"requests": (9, 4), "cached": (80, 0), "prompt_tokens": -1}
    assert choose("sglang_cache_aware", **given) == (1, "least_load")


# lmetric: (prompt - cached) x (requests + 1); then fewest requests, least uncached, lowest index.


def test_lmetric_weighs_what_is_cached_against_the_load():
    """100 x 2 = 200, 50 x 4 = 200, 20 x 11 = 220: of the equals the fewest requests. Then 300, 200,
    220; then 300, 250, 180."""
    given = {"requests": (1, 3, 10), "cached": (0, 50, 80)}
    assert choose("lmetric", **given) == (0, "load")
    assert choose("lmetric", **{**given, "requests": (2, 3, 10)}) == (1, "prefix_and_load")
    assert choose("lmetric", **{**given, "requests": (2, 4, 8)}) == (2, "prefix_and_load")


def test_lmetric_without_a_length_takes_the_fewest_requests_then_the_lowest_index():
    assert choose("lmetric", requests=(3, 1, 1), cached=(0, 0, 0), prompt_tokens=-1)[0] == 1


def test_lmetric_takes_the_lowest_index_of_those_that_are_alike():
    assert choose("lmetric", requests=(5, 1, 1), cached=(0, 0, 0))[0] == 1


# llm-d: 3 x matched / total blocks + 2 x (Qmax - Q) / (Qmax - Qmin) + 2 x (1 - KV).


def test_llmd_adds_prefix_queue_and_kv_as_three_two_two():
    """160 tokens are 10 blocks; queues 0..4.

    0: 3 x 0.5 + 2 x 0    + 2 x 0.4 = 2.3
    1: 3 x 0   + 2 x 1    + 2 x 0.1 = 2.2
    2: 3 x 0   + 2 x 0.75 + 2 x 0.2 = 1.9
    """
    given = {"prompt_tokens": 160, "waiting": (4, 0, 1), "kv": (0.6, 0.9, 0.8)}
    assert choose("llmd_default", cached=(80, 0, 0), **given) == (0, "prefix_and_load")
    # With 4 blocks the first has 3 x 0.4 + 0.8 = 2.0.
    assert choose("llmd_default", cached=(64, 0, 0), **given) == (1, "load")


def test_llmd_gives_equal_queues_one_each():
    given = {"waiting": (7, 7), "kv": (0.5, 0.5), "cached": (0, 0)}
    assert spread("llmd_default", **given) == [600, 600]
    assert choose("llmd_default", waiting=(7, 7), kv=(0.5, 0.4), cached=(0, 0))[0] == 1


def test_llmd_counts_whole_blocks_of_the_first_256():
    """8,000 tokens are 500 blocks, of which 256 count: 128 cached are a half, 3 x 0.5 = 1.5, just
    more than 2 x 0.7 = 1.4; over all 500 they would be 0.77."""
    given = {"prompt_tokens": 8000, "waiting": (0, 0), "kv": (0.7, 0.0)}
    assert choose("llmd_default", cached=(2048, 0), **given)[0] == 0
    everything = {"most_blocks": 1000.0}
    assert choose("llmd_default", cached=(2048, 0), parameters=everything, **given)[0] == 1
    # 31 tokens are one whole block: 1 of 2 blocks of a prompt of 40, 1.5 > 1.4
    short = {"prompt_tokens": 40, "waiting": (0, 0), "kv": (0.7, 0.0)}
    assert choose("llmd_default", cached=(31, 0), **short)[0] == 0
    assert choose("llmd_default", cached=(15, 0), **short)[0] == 1


@pytest.mark.parametrize("prompt_tokens", [-1, 0, 15])
def test_llmd_scores_no_prefix_without_a_whole_block(prompt_tokens):
    given = {"cached": (8, 0), "waiting": (0, 0), "kv": (0.2, 0.1)}
    assert choose("llmd_default", prompt_tokens=prompt_tokens, **given)[0] == 1


def test_llmd_takes_any_of_three_equals_alike():
    given = {"cached": (0, 0, 0, 0), "waiting": (1, 0, 0, 0), "kv": (0.5, 0.5, 0.5, 0.5)}
    assert spread("llmd_default", **given) == [0, 400, 400, 400]


def test_load_aware_scores_half_to_nothing_over_the_threshold():
    assert choose("llmd_load_aware", waiting=(3, 1, 2)) == (1, "shortest_queue")
    # Beyond the threshold all are alike.
    assert spread("llmd_load_aware", waiting=(128, 500, 129, 130)) == [300, 300, 300, 300]
    assert choose("llmd_load_aware", waiting=(128, 127))[0] == 1


def test_load_aware_with_a_threshold_of_nothing_means_the_default():
    assert (
        choose("llmd_load_aware", waiting=(128, 127), parameters={"threshold_requests": 0})[0] == 1
    )


# Dynamo: w x prefill blocks + blocks in use.


@pytest.mark.parametrize("name", ["dynamo_kv", "dynamo_kv_old"])
def test_dynamo_adds_prefill_blocks_and_blocks_in_use(name):
    """160 tokens are 10 blocks.

    0: (0   + 160 - 96) / 16 + 800 / 16 = 4  + 50 = 54
    1: (64  + 160)      / 16 + 640 / 16 = 14 + 40 = 54
    2: (160 + 160)      / 16 + 640 / 16 = 20 + 40 = 60
    """
    given = {"prompt_tokens": 160, "cached": (96, 0, 0), "pending": (0, 64, 160)}
    assert choose(name, context=(800, 639, 640), **given) == (1, "load")
    assert choose(name, context=(799, 640, 640), **given) == (0, "prefix_and_load")
    assert spread(name, context=(800, 640, 640), **given) == [600, 600, 0]


def test_dynamos_overlap_weight_multiplies_what_is_to_prefill():
    """Weight 1: 10 - 6 + 20 = 24 against 10 + 13 = 23. Weight 5: 20 + 20 = 40 against 50 + 13."""
    given = {"prompt_tokens": 160, "cached": (96, 0), "pending": (0, 0), "context": (320, 208)}
    assert choose("dynamo_kv_old", **given)[0] == 1
    assert choose("dynamo_kv_old", parameters={"overlap_weight": 5.0}, **given)[0] == 0
    assert choose("dynamo_kv", **given)[0] == 1
    assert choose("dynamo_kv", parameters={"prefill_scale": 5.0}, **given)[0] == 0


def test_dynamos_credit_is_a_part_of_what_is_cached():
    """Credit 0.5: 10 - 3 + 20 = 27 against 10 + 16.5 = 26.5; credit 1: 24."""
    given = {"prompt_tokens": 160, "cached": (96, 0), "pending": (0, 0), "context": (320, 264)}
    assert choose("dynamo_kv", **given)[0] == 0
    assert choose("dynamo_kv", parameters={"overlap_credit": 0.5}, **given)[0] == 1


def test_dynamos_credit_never_makes_prefill_negative():
    """Credit 2: 10 - 12 is no less than 0, so 0 + 20 = 20 against 10 + 9 = 19."""
    given = {"prompt_tokens": 160, "cached": (96, 0), "pending": (0, 0), "context": (320, 144)}
    assert choose("dynamo_kv", parameters={"overlap_credit": 2.0}, **given)[0] == 1


def test_dynamos_credit_decays_with_the_prefill_beyond_the_least():
    """0 owes 160 tokens more than 1: 10 blocks, one of this prompt's lengths.

    decay 0:  20 - 8     + 0 = 12    against 10 + 3 = 13
    decay 1:  20 - 8 / 2 + 0 = 16    against 13
    """
    given = {"prompt_tokens": 160, "cached": (128, 0), "pending": (160, 0), "context": (0, 48)}
    assert choose("dynamo_kv", **given)[0] == 0
    assert choose("dynamo_kv", parameters={"credit_decay": 1.0}, **given)[0] == 1


def test_dynamos_credit_decays_by_what_is_beyond_the_least_in_lengths_of_this_prompt():
    """20 and 10 blocks to prefill: one length of this prompt's 10 beyond the least. 1 costs 10 + 10
    + 6.5 = 26.5.

    decay 1:  30 - 8 / 2 = 26
    decay 2:  30 - 8 / 3 = 27.3
    """
    given = {"prompt_tokens": 160, "cached": (128, 0), "pending": (320, 160), "context": (0, 104)}
    assert choose("dynamo_kv", parameters={"credit_decay": 1.0}, **given)[0] == 0
    assert choose("dynamo_kv", parameters={"credit_decay": 2.0}, **given)[0] == 1


def test_dynamo_can_charge_each_request_there():
    given = {"requests": (9, 1), "context": (32, 160), "pending": (0, 0), "cached": (0, 0)}
    assert choose("dynamo_kv", **given)[0] == 0  # 2 against 10 blocks
    assert choose("dynamo_kv", parameters={"request_weight": 1.5}, **given)[0] == 1  # 15.5, 11.5


@pytest.mark.parametrize("name", ["dynamo_kv", "dynamo_kv_old"])
def test_dynamo_without_a_length_weighs_what_is_there(name):
    given = {"pending": (32, 0), "context": (100, 140), "cached": (0, 0)}
    assert choose(name, prompt_tokens=-1, **given)[0] == 0  # 132 against 140 tokens


# aibrix: match % desc, requests asc, those with requests <= mean + sigma; the gate at 2 (mean + 1).


def test_aibrix_takes_the_best_match_that_is_not_too_busy():
    """Mean 3, deviations 9, 1, 1, 9 over 3: sigma sqrt(20 / 3) = 2.58; at most 5.58."""
    given = {"cached": (96, 48, 0, 32), "requests": (6, 4, 2, 0)}
    assert choose("aibrix_prefix_cache", **given) == (1, "prefix_match")
    wider = {"deviations": 2.0}
    assert choose("aibrix_prefix_cache", parameters=wider, **given) == (0, "prefix_match")


def test_aibrix_takes_the_samples_deviation():
    """Of 4 and 0 the mean is 2, the sample's deviation 2.83, the population's 2: 4 <= 4.83, and on
    0.75 deviations 4 <= 4.12, where the population's would give 3.5."""
    given = {"cached": (96, 0), "requests": (4, 0), "parameters": {"deviations": 0.75}}
    assert choose("aibrix_prefix_cache", **given) == (0, "prefix_match")


def test_aibrix_gives_equal_whole_percentages_to_the_fewest_requests_then_to_any():
    given = {"prompt_tokens": 1000, "requests": (2, 1, 1), "parameters": {"deviations": 2.0}}
    assert choose("aibrix_prefix_cache", cached=(409, 400, 390), **given)[0] == 1
    assert choose("aibrix_prefix_cache", cached=(410, 400, 390), **given)[0] == 0
    assert spread("aibrix_prefix_cache", cached=(409, 400, 401), **given) == [0, 600, 600]


def test_aibrix_falls_back_to_the_fewest_requests_among_equals_any():
    assert choose("aibrix_prefix_cache", cached=(0, 0), requests=(3, 2)) == (1, "least_requests")
    given = {"cached": (0, 0, 0), "requests": (3, 2, 2)}
    assert spread("aibrix_prefix_cache", **given) == [0, 600, 600]


def test_aibrix_skips_a_match_that_is_too_busy():
    """Mean 2.25, deviation sqrt(30.75 / 3) = 3.2: 7 > 5.45. The gap is 7, below the gate."""
    given = {"cached": (96, 0, 0, 0), "requests": (7, 0, 1, 1)}
    assert choose("aibrix_prefix_cache", **given) == (1, "prefix_match_skipped")


def test_aibrix_matches_only_where_the_fewest_are_when_loads_are_far_apart():
    """Mean 3, the most 9 > 2 x (3 + 1), the gap 9 >= 8: only candidates with 0 requests count."""
    given = {"cached": (96, 80, 16, 0), "requests": (9, 3, 0, 0)}
    assert choose("aibrix_prefix_cache", **given) == (2, "prefix_match_imbalanced")
    # A gap of exactly 8, and 8 > 2 x (2.5 + 1).
    just = {"cached": (0, 96, 16, 0), "requests": (8, 2, 0, 0)}
    assert choose("aibrix_prefix_cache", **just) == (2, "prefix_match_imbalanced")
    nothing_there = {"cached": (96, 80, 0, 0), "requests": (9, 3, 0, 0)}
    assert choose("aibrix_prefix_cache", **nothing_there)[1] == "prefix_match_skipped"


@pytest.mark.parametrize(
    "requests",
    [
        (8, 1, 0, 3),  # 8 > 2 x (3 + 1) is false
        (7, 0, 0, 0),  # 7 > 2 x 2.75, but the gap is 7
    ],
)
def test_aibrix_keeps_matching_everywhere_up_to_its_gate(requests):
    given = {"cached": (0, 96, 16, 0), "requests": requests}
    assert choose("aibrix_prefix_cache", **given) == (1, "prefix_match")


def test_aibrix_without_a_length_takes_the_fewest_requests_of_those_that_hold_some():
    given = {"cached": (16, 96, 0), "requests": (1, 2, 1), "prompt_tokens": -1}
    assert choose("aibrix_prefix_cache", **given) == (0, "prefix_match")


# vllm-router kv_aware, production-stack loadaware.


def test_kv_aware_takes_the_most_cached_whatever_the_load():
    assert choose("vllm_kv_aware", cached=(16, 32, 0), requests=(0, 99, 0)) == (1, "most_cached")


def test_kv_aware_takes_the_last_of_equals():
    assert choose("vllm_kv_aware", cached=(32, 16, 32), requests=(0, 0, 9))[0] == 2


def test_kv_aware_takes_the_least_load_when_nothing_is_cached():
    assert choose("vllm_kv_aware", cached=(0, 0, 0), requests=(2, 1, 1)) == (1, "least_load")


def test_loadaware_subtracts_the_relative_load_from_the_cached_fraction():
    """Mean 4. 0: 0.8 - (6 - 4) / 4 = 0.3; 1: 0 - (3 - 4) / 4 = 0.25; 2: 0.25 too."""
    given = {"requests": (6, 3, 3), "prompt_tokens": 100}
    assert choose("production_stack_loadaware", cached=(80, 0, 0), **given) == (
        0,
        "prefix_and_load",
    )
    # 0.7 - 0.5 = 0.2 < 0.25, the lower index of the equals
    assert choose("production_stack_loadaware", cached=(70, 0, 0), **given) == (1, "load")
    halved = {"beta": 0.5}
    assert (
        choose("production_stack_loadaware", cached=(70, 0, 0), parameters=halved, **given)[0] == 0
    )


def test_loadaware_calls_no_fleet_imbalanced_that_is_nearly_idle():
    """Mean 0.5, which counts as 1: 0.96 - 0.5 = 0.46 against 0.5."""
    given = {"requests": (1, 0), "prompt_tokens": 100}
    assert choose("production_stack_loadaware", cached=(96, 0), **given)[0] == 1
    # beta 0.9: 0.96 - 0.45 = 0.51 against 0.45; divided by the mean, 0.06 against 0.9.
    given["parameters"] = {"beta": 0.9}
    assert choose("production_stack_loadaware", cached=(96, 0), **given)[0] == 0


def test_loadaware_takes_the_fewest_requests_when_nothing_is_cached():
    given = {"cached": (0, 0), "requests": (3, 1), "parameters": {"beta": 0.0}}
    assert choose("production_stack_loadaware", **given) == (1, "load")


# Ray: gate, then match >= 10 %, then the emptiest cache; Preble; two choices by tokens.


def test_ray_takes_the_best_match_of_a_tenth_or_more():
    given = {"kv": (0.5, 0.1, 0.9), "requests": (0, 3, 7)}
    assert choose("ray_prefix_affinity", cached=(0, 0, 10), **given) == (2, "prefix_match")
    assert choose("ray_prefix_affinity", cached=(0, 0, 9), **given) == (1, "least_cache_use")


def test_ray_takes_the_fewest_requests_of_equal_matches_and_of_equal_caches():
    given = {"kv": (0.2, 0.2, 0.9), "requests": (4, 3, 0)}
    assert choose("ray_prefix_affinity", cached=(64, 64, 0), **given)[0] == 1
    assert choose("ray_prefix_affinity", cached=(0, 0, 0), **given)[0] == 1


def test_ray_takes_the_fewer_of_two_when_loads_are_farther_apart_than_the_threshold():
    """0.5 x 3 = 1.5: first 1, the rest 0.5 x 2 = 1: second 2."""
    given = {"kv": (0, 0, 0), "cached": (96, 0, 0), "requests": (0, 12, 11), "random": 0.5}
    gate = {"imbalanced_requests": 10.0}
    assert choose("ray_prefix_affinity", parameters=gate, **given) == (2, "fewer_of_two")
    gate = {"imbalanced_requests": 12.0}
    assert choose("ray_prefix_affinity", parameters=gate, **given) == (0, "prefix_match")
    assert choose("ray_prefix_affinity", **given) == (0, "prefix_match")


def test_ray_without_a_length_takes_the_emptiest_cache():
    given = {"kv": (0.5, 0.1), "requests": (0, 0), "cached": (64, 0), "prompt_tokens": -1}
    assert choose("ray_prefix_affinity", **given) == (1, "least_cache_use")


def test_preble_exploits_when_more_is_cached_than_left():
    given = {"free_at": (90, 30, 0), "work": (5, 5, 10)}
    assert choose("preble", cached=(51, 0, 0), **given) == (0, "exploit")
    assert choose("preble", cached=(51, 51, 0), **given) == (1, "exploit")
    assert choose("preble", cached=(50, 50, 0), **given) == (2, "explore")


def test_preble_explores_by_wait_and_own_prefill():
    """10 + 9, 4 + 12, 0 + 16: the lower index of the equals."""
    given = {"free_at": (10, 4, 0), "work": (9, 12, 16), "cached": (48, 16, 0)}
    assert choose("preble", **given) == (1, "explore")
    assert choose("preble", prompt_tokens=-1, **given) == (1, "explore")


def test_two_choices_compare_tokens():
    """0.5 x 3 = 1.5: first 1, second 2."""
    given = {"random": 0.5}
    assert choose("power_of_two_tokens", context=(0, 70, 80), **given)[0] == 1
    assert choose("power_of_two_tokens", context=(0, 90, 80), **given)[0] == 2
    assert choose("power_of_two_tokens", context=(0, 80, 80), **given)[0] == 1
    assert choose("power_of_two_tokens", context=(5,), random=0.99)[0] == 0
