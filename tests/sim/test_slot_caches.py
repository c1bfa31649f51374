"""Caches that share what a request computed only once it has ended; answers that never come back.

An iteration takes 10 ms, 1 a prefill token and 1 a decoding request; blocks hold four tokens.
"""

from __future__ import annotations

from dataclasses import replace

from pointsman import POLICIES
from pointsman.sim.batching import simulate_fleet
from pointsman.workload.workload import workload_of_columns
from tests.small_fleets import alike, asked, split

# The second comes while the first one decodes, the third when both have ended; all share 8 tokens.
SHARING = asked((0, 9, 5, (0, 1)), (25, 9, 2, (0, 1)), (500, 9, 1, (0, 1)))


def cached(workload, fleet):
    return simulate_fleet(workload, POLICIES["round_robin"], fleet).cached_tokens.tolist()


def test_a_running_request_shares_what_it_computed_with_the_next():
    assert cached(SHARING, alike(1)) == [0, 8, 8]


def test_slots_share_it_once_the_request_has_ended():
    assert cached(SHARING, alike(1, shares_late=True)) == [0, 0, 8]


def test_the_request_that_finds_nothing_computes_its_whole_prompt():
    run = simulate_fleet(SHARING, POLICIES["round_robin"], alike(1, shares_late=True))
    # The first: 9 tokens in 19 ms, then decodes of 11 ms, the first of which ends at 30. The second
    # is taken up there: 10 + 9 + 1 for the other's decode.
    assert run.first_token_ms[:2].tolist() == [19.0, 50.0]


def test_a_prefill_replica_shares_a_prompt_once_its_prefill_has_ended():
    # Five tokens an iteration: when the second is taken up, one block of the first one is full.
    requests = asked((0, 9, 5, (0, 1)), (1, 9, 2, (0, 1)), (500, 9, 1, (0, 1)))
    fleet = split(1, 1, max_num_batched_tokens=5)
    late = split(1, 1, max_num_batched_tokens=5, shares_late=True)
    assert (cached(requests, fleet), cached(requests, late)) == ([0, 4, 8], [0, 0, 8])


def conversation():
    """The next turn's chain names the block that the first one's answer fills."""
    return workload_of_columns(
        [0.0, 500.0],
        prompt_tokens=[8, 13],
        output_tokens=[5, 1],
        session=[0, 0],
        chain_start=[0, 2, 5],
        chain_blocks=[0, 1, 0, 1, 2],
        block_size_tokens=4,
    )


def test_an_answer_that_is_sent_back_is_found_with_its_prompt():
    assert cached(conversation(), alike(1)) == [0, 12]


def test_an_answer_that_never_comes_back_is_not():
    assert cached(conversation(), replace(alike(1), keeps_answers=False)) == [0, 8]
