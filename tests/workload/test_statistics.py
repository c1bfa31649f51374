from __future__ import annotations

import numpy as np
import pytest

from pointsman.core.errors import InputError
from pointsman.workload.formats import read_workload
from pointsman.workload.statistics import hit_blocks, statistics_of
from pointsman.workload.workload import workload_of_columns


def chained(*chains: list[int], prompt_tokens: int = 40):
    """Rows of 40 tokens, 1 s apart, with chains of blocks of 10 tokens."""
    count = len(chains)
    return workload_of_columns(
        np.arange(count) * 1000.0,
        prompt_tokens=[prompt_tokens] * count,
        output_tokens=[1] * count,
        chain_start=np.cumsum([0, *map(len, chains)]),
        chain_blocks=[block for chain in chains for block in chain],
        block_size_tokens=10,
    )


def test_a_hit_ends_at_the_first_block_that_no_earlier_row_has():
    workload = chained([0, 1, 2], [0, 1, 3], [], [0, 4, 2], [5], [0, 1, 3, 6])
    assert hit_blocks(workload).tolist() == [0, 2, 0, 1, 0, 3]


def test_a_block_twice_in_one_row_is_no_hit():
    assert hit_blocks(chained([0, 0])).tolist() == [0]


def test_the_prefix_hit_ceiling_counts_whole_blocks_of_all_prompt_tokens():
    # Hits of 0, 2 and 3 blocks of 10 tokens; prompts of 3 * 40 tokens.
    prefix = statistics_of(chained([0, 1, 2], [0, 1, 3], [0, 1, 2, 4])).prefix
    assert prefix.hit_ceiling_fraction == pytest.approx(50 / 120)
    assert prefix.requests_with_hit_fraction == pytest.approx(2 / 3)
    assert prefix.distinct_blocks == 5
    assert prefix.block_size_tokens == 10


def test_a_prefix_key_that_hits_covers_its_tokens():
    workload = workload_of_columns(
        [0.0, 1.0],
        prompt_tokens=[100, 80],
        output_tokens=[1, 1],
        chain_start=[0, 1, 2],
        chain_blocks=[0, 0],
        prefix_tokens=[60, 60],
    )
    prefix = statistics_of(workload).prefix
    assert prefix.hit_ceiling_fraction == pytest.approx(60 / 180)
    assert prefix.block_size_tokens is None


def test_without_lengths_only_the_share_of_requests_is_known():
    workload = workload_of_columns(
        [0.0, 1.0], service_ms=[1, 1], chain_start=[0, 1, 2], chain_blocks=[0, 0]
    )
    prefix = statistics_of(workload).prefix
    assert prefix.hit_ceiling_fraction is None
    assert prefix.requests_with_hit_fraction == 0.5


def test_rates_and_variation_are_those_of_the_gaps():
    # Gaps of 1, 1 and 4 s: mean 2 s, standard deviation sqrt(2) s.
    statistics = statistics_of(workload_of_columns([0, 1000, 2000, 6000], service_ms=[1] * 4))
    assert statistics.span_ms == 6000.0
    assert statistics.mean_rate_rps == pytest.approx(0.5)
    assert statistics.interarrival_cv == pytest.approx(2**0.5 / 2)
    assert statistics.busiest_minute_rps is None


def test_the_busiest_minute_is_found_wherever_it_begins():
    # Three arrivals within 60 s from 50 s on; the one at 110 s is a minute later.
    arrival_ms = [0, 50_000, 80_000, 109_999, 110_000]
    statistics = statistics_of(workload_of_columns(arrival_ms, service_ms=[1] * 5))
    assert statistics.busiest_minute_rps == pytest.approx(3 / 60)


def test_percentiles_are_by_nearest_rank():
    tokens = list(range(1, 21))
    workload = workload_of_columns([0.0] * 20, prompt_tokens=tokens, output_tokens=tokens)
    summary = statistics_of(workload).prompt_tokens
    assert (summary.p50, summary.p90, summary.p95, summary.p99) == (10, 18, 19, 20)
    assert (summary.rows, summary.mean, summary.min, summary.max) == (20, 10.5, 1, 20)


def test_sessions_and_their_turns_are_counted():
    workload = workload_of_columns(
        [0.0] * 5, service_ms=[1] * 5, session=[0, 1, 0, -1, 0], adapter=[2, 2, -1, -1, 3]
    )
    statistics = statistics_of(workload)
    assert (statistics.sessions, statistics.turns.mean, statistics.turns.max) == (2, 2.0, 3)
    assert statistics.adapters == 2


def test_one_request_has_no_rate():
    statistics = statistics_of(workload_of_columns([5.0], service_ms=[1]))
    assert statistics.mean_rate_rps is None
    assert statistics.interarrival_cv is None
    assert (statistics.prompt_tokens, statistics.turns, statistics.prefix) == (None, None, None)


def test_no_requests_have_no_statistics():
    with pytest.raises(InputError, match="no requests"):
        statistics_of(workload_of_columns([]))


@pytest.mark.traces
def test_the_public_traces_ceiling_is_near_the_published_one(shared):
    # Published: 36.6 % of the blocks, partial ones included. Of the tokens, in whole blocks, a
    # loop over the rows with a set of the blocks seen gives 37.34 %.
    statistics = statistics_of(read_workload(shared("traces/mooncake_conversation.jsonl")))
    assert statistics.prefix.hit_ceiling_fraction == pytest.approx(0.373380, abs=1e-6)
    assert statistics.mean_rate_rps == pytest.approx(3.40, abs=0.01)
    assert statistics.arrival_step_ms == 3000.0
