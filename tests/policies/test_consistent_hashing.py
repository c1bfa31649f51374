"""Keys and the candidates that they belong to."""

from __future__ import annotations

import numpy as np
import pytest

from pointsman import POLICIES
from pointsman.policies.hashing import rendezvous_weight
from pointsman.policies.policy import CANDIDATE, REQUESTS, view_for
from tests.policies.views import choice_of, choose

MASK = (1 << 64) - 1
HASHING = ("session_affinity", "sglang_prefix_hash", "sglang_bounded_hashing")


def mixed(state):
    """SplitMix64's output function, in Python's own integers."""
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
    return state ^ (state >> 31)


def weight(key, candidate):
    step = 0x9E3779B97F4A7C15
    of_key = mixed((key + step) & MASK)
    return (mixed((of_key + step * (candidate + 1)) & MASK) >> 11) * 2.0**-53


def ranking(key, candidates):
    return sorted(candidates, key=lambda number: -weight(key, number))


def key_that_ranks(*order):
    return next(key for key in range(10_000) if ranking(key, range(len(order))) == list(order))


def test_the_mix_is_splitmix64():
    """The generator's first three outputs from seed 0 (xoshiro.di.unimi.it/splitmix64.c)."""
    step = 0x9E3779B97F4A7C15
    outputs = [mixed((step * k) & MASK) for k in (1, 2, 3)]
    assert outputs == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


@pytest.mark.parametrize("key", [0, 1, 7, 2**31, 2**62])
def test_weights_are_those_of_plain_integers(key):
    for candidate in (0, 1, 4095):
        assert rendezvous_weight(key, candidate) == weight(key, candidate)


@pytest.mark.parametrize("name", HASHING)
def test_with_nothing_in_flight_a_key_goes_to_the_candidate_that_it_ranks_highest(name):
    for key in range(200):
        owner = ranking(key, range(5))[0]
        view = view_for(POLICIES[name].reads, 5)
        view[CANDIDATE] = np.arange(5)
        assert choice_of(name, view, key=key) == (owner, "owner")


def test_a_key_keeps_its_replica_when_another_one_leaves():
    """Candidate 1 is gone: its keys go to their second, all the others stay."""
    for key in range(300):
        first, second, *_ = ranking(key, range(4))
        view = view_for(POLICIES["session_affinity"].reads, 3)
        view[CANDIDATE] = (0, 2, 3)
        column, _ = choice_of("session_affinity", view, key=key)
        assert (0, 2, 3)[column] == (second if first == 1 else first)


def test_keys_are_shared_out_evenly():
    """Of 8,000 keys 1,000 each are expected, with a deviation of 30; all within five of them."""
    owners = [max(range(8), key=lambda c: rendezvous_weight(key, c)) for key in range(8000)]
    counts = np.bincount(owners, minlength=8)
    assert counts.min() > 850
    assert counts.max() < 1150


# prefix_hash: load <= 1.25 (total + 1) / n, else the least loaded under it, else the owner.


def test_prefix_hash_leaves_an_owner_over_the_bound_for_the_fewest_requests():
    """(11 + 1) / 3 x 1.25 = 5.0: an owner with 5 is kept, one with 6 of 11 is not."""
    key = key_that_ranks(0, 1, 2)
    assert choose("sglang_prefix_hash", requests=(5, 4, 2), key=key) == (0, "owner")
    assert choose("sglang_prefix_hash", requests=(6, 4, 1), key=key) == (2, "least_load")
    assert choose("sglang_prefix_hash", requests=(9, 1, 1), key=key) == (1, "least_load")


def test_prefix_hash_keeps_the_owner_when_nobody_is_within_the_bound():
    """A factor of 0.5: (8 + 1) / 2 x 0.5 = 2.25, and both have more."""
    key = key_that_ranks(0, 1)
    given = {"requests": (5, 3), "key": key, "parameters": {"load_factor": 0.5}}
    assert choose("sglang_prefix_hash", **given) == (0, "owner_over_bound")


# bounded_consistent_hashing: load <= 1.5 total / n, else the next under it, else the owner.


def test_bounded_hashing_spills_to_the_next_in_rank_within_the_bound():
    """12 / 3 x 1.5 = 6: 6 is within, 7 is not."""
    key = key_that_ranks(0, 2, 1)
    name = "sglang_bounded_hashing"
    assert choose(name, requests=(6, 4, 2), key=key) == (0, "owner")
    assert choose(name, requests=(7, 1, 4), key=key) == (2, "next_in_rank")
    # 9 / 3 x 1 = 3: the second in rank is beyond it as well.
    tight = {"load_factor": 1.0}
    assert choose(name, requests=(4, 1, 4), key=key, parameters=tight) == (1, "next_in_rank")


def test_bounded_hashing_keeps_the_owner_when_nobody_is_within_the_bound():
    given = {"requests": (5, 3), "key": key_that_ranks(0, 1), "parameters": {"load_factor": 0.5}}
    assert choose("sglang_bounded_hashing", **given) == (0, "owner_over_bound")


def test_one_candidate_gets_everything():
    for name in HASHING:
        view = view_for(POLICIES[name].reads, 1)
        view[CANDIDATE] = 6
        if "requests" in POLICIES[name].reads:
            view[REQUESTS] = 100
        assert choice_of(name, view, key=3)[0] == 0
