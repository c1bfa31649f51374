from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pointsman.core.errors import InputError
from pointsman.workload.arrivals import ConstantArrivals, PoissonArrivals
from pointsman.workload.distributions import Constant, Exponential, Geometric, Lognormal, Uniform
from pointsman.workload.formats import read_workload
from pointsman.workload.generate import Conversations, SystemPrompts, Traffic, generate
from pointsman.workload.writer import write_workload
from tests.workload.equality import assert_equal

SIMPLE = Traffic(
    requests=500,
    arrivals=PoissonArrivals(10),
    prompt_tokens=Uniform(10, 200),
    output_tokens=Lognormal(1, mean=40, max=400),
)
TALK = replace(
    SIMPLE,
    conversations=Conversations(Geometric(4), Exponential(2_000)),
    system_prompts=SystemPrompts(Constant(100), count=3),
)


def test_equal_seeds_give_equal_columns_and_others_others():
    assert_equal(generate(TALK, 7), generate(TALK, 7))
    assert not np.array_equal(generate(TALK, 7).arrival_ms, generate(TALK, 8).arrival_ms)


def test_changing_one_distribution_leaves_the_other_draws_as_they_were():
    other = generate(replace(SIMPLE, prompt_tokens=Constant(5)), 7)
    assert np.array_equal(other.arrival_ms, generate(SIMPLE, 7).arrival_ms)
    assert np.array_equal(other.output_tokens, generate(SIMPLE, 7).output_tokens)
    assert set(other.prompt_tokens) == {5}


def test_conversations_leave_the_arrival_process_as_it_is():
    assert np.array_equal(generate(TALK, 7).arrival_ms, generate(SIMPLE, 7).arrival_ms)


def test_simple_requests_have_no_prefix_and_no_session():
    workload = generate(SIMPLE)
    assert (workload.block_count, workload.session_count) == (0, 0)


def test_a_turn_holds_the_turns_before_it_and_their_answers():
    # One conversation of three turns: a new message of 20 tokens, an answer of 12.
    traffic = Traffic(
        requests=3,
        arrivals=ConstantArrivals(1),
        prompt_tokens=Constant(20),
        output_tokens=Constant(12),
        conversations=Conversations(Constant(3), Constant(500)),
        block_size_tokens=16,
    )
    workload = generate(traffic)
    assert workload.session.tolist() == [0, 0, 0]
    assert workload.prompt_tokens.tolist() == [20, 52, 84]
    assert [workload.chain(row).tolist() for row in range(3)] == [
        [0],
        [0, 1, 2],
        [0, 1, 2, 3, 4],
    ]


def test_a_turn_comes_no_sooner_than_the_think_time_after_the_one_before():
    traffic = replace(TALK, conversations=Conversations(Constant(5), Constant(3_000)))
    workload = generate(traffic)
    for session in range(workload.session_count):
        gaps = np.diff(workload.arrival_ms[workload.session == session])
        assert np.all(gaps >= 3_000)


def test_every_later_turn_begins_with_the_full_blocks_of_the_turn_before():
    workload = generate(TALK, 3)
    latest: dict[int, list[int]] = {}
    for row, session in enumerate(workload.session.tolist()):
        chain = workload.chain(row).tolist()
        before = latest.get(session, [])
        assert chain[: len(before)] == before
        latest[session] = chain


def test_conversations_with_one_system_prompt_share_its_full_blocks_and_no_more():
    traffic = replace(TALK, system_prompts=SystemPrompts(Constant(100)), conversations=None)
    workload = generate(replace(traffic, prompt_tokens=Constant(60)))
    # 100 tokens fill 6 blocks of 16; the 7th holds 4 of them and 12 of the message.
    first, second = workload.chain(0).tolist(), workload.chain(1).tolist()
    assert first == list(range(10))
    assert second == [*range(6), 10, 11, 12, 13]


def test_system_prompts_are_as_popular_as_zipf_says():
    shared = SystemPrompts(Constant(16), count=3, zipf_exponent=1.0)
    traffic = Traffic(
        requests=11_000,
        arrivals=ConstantArrivals(1),
        prompt_tokens=Constant(1),  # fills no block
        output_tokens=Constant(1),
        system_prompts=shared,
    )
    counts = sorted(np.bincount(generate(traffic, 1).chain_blocks).tolist())
    # Weights 1, 1/2 and 1/3 of 11/6.
    assert counts == pytest.approx([2_000, 3_000, 6_000], rel=0.06)


def test_a_conversation_ends_before_it_exceeds_the_longest_prompt():
    workload = generate(replace(TALK, max_prompt_tokens=400))
    assert workload.prompt_tokens.max() <= 400
    assert workload.session_count > generate(TALK).session_count


def test_a_first_prompt_is_cut_at_the_longest_prompt():
    assert generate(replace(SIMPLE, max_prompt_tokens=50)).prompt_tokens.max() == 50
    cut = generate(replace(TALK, max_prompt_tokens=50, conversations=None))
    assert set(cut.prompt_tokens) == {50}
    assert set(np.diff(cut.chain_start)) == {3}


@pytest.mark.parametrize("traffic", [SIMPLE, TALK, replace(TALK, conversations=None)])
def test_what_is_generated_is_written_and_read_back_exactly(tmp_path, traffic):
    workload = generate(traffic, 5)
    write_workload(workload, tmp_path / "w.jsonl")
    assert_equal(read_workload(tmp_path / "w.jsonl"), workload)


def test_no_prompt_and_no_answer_is_empty():
    """Half of the draws of 0..1 are 0, and those of an exponential below 0.5 round to it."""
    traffic = replace(SIMPLE, prompt_tokens=Uniform(0, 1), output_tokens=Exponential(1))
    workload = generate(traffic)
    assert set(workload.prompt_tokens) == {1}
    assert (workload.output_tokens.min(), workload.output_tokens.max() > 1) == (1, True)


@pytest.mark.parametrize("name", ["prompt_tokens", "output_tokens"])
def test_a_length_that_is_always_0_is_refused(name):
    with pytest.raises(InputError, match=f"{name} is 0; expected 1 or more"):
        generate(replace(SIMPLE, **{name: Constant(0)}))


def test_lengths_beyond_32_bits_are_refused():
    with pytest.raises(InputError, match=r"prompt_tokens is 3000000000\.0; expected draws up to"):
        generate(replace(SIMPLE, prompt_tokens=Constant(3e9)))


@pytest.mark.parametrize("rate_rps", [1e-12, 5e-324])
def test_a_rate_so_low_that_no_file_may_hold_the_arrivals_is_refused(rate_rps):
    with pytest.raises(InputError, match=r"the last arrival is .*; expected at most 1e\+15 ms"):
        generate(replace(SIMPLE, arrivals=PoissonArrivals(rate_rps)))


def test_more_blocks_than_a_column_can_number_are_refused():
    traffic = replace(TALK, prompt_tokens=Constant(2e9), block_size_tokens=1, requests=2)
    with pytest.raises(InputError, match="more than 2147483647 blocks"):
        generate(replace(traffic, conversations=None))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: replace(SIMPLE, requests=0), "requests is 0; expected an integer in 1"),
        (lambda: replace(SIMPLE, requests=2 * 10**9), r"expected an integer in 1\.\.100000000"),
        (lambda: replace(SIMPLE, block_size_tokens=0), "block_size_tokens is 0"),
        (lambda: SystemPrompts(Constant(1), count=0), "system prompts is 0"),
        (lambda: SystemPrompts(Constant(1), zipf_exponent=-1), "zipf_exponent is -1"),
        (lambda: generate(SIMPLE, -1), "seed is -1; expected an integer >= 0"),
    ],
)
def test_a_count_out_of_range_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
