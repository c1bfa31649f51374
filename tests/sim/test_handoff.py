"""Prefill and decode apart: the hand-off, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pointsman import POLICIES, InputError
from pointsman.sim.batching import BatchingFleet, FleetRun, Split, simulate_fleet
from tests.small_fleets import ENGINE, LINK, asked, split

TURNS = POLICIES["round_robin"]
SHORTEST = replace(POLICIES["queue_aware"], reads=frozenset(("queue", "prefix")))


def test_a_request_is_prefilled_handed_over_and_decoded():
    """Prefill 10 + 8 = 18; base to 23; 16 bytes to 39; the last prompt token again, 11, to 50;
    two decodes of 11."""
    run = simulate_fleet(asked((0, 8, 3)), TURNS, split(1, 1))
    assert run.prefills["finish_ms"].tolist() == [18.0]
    assert run.progress["received_ms"].tolist() == [39.0]
    assert run.first_token_ms.tolist() == [50.0]
    assert run.finish_ms.tolist() == [72.0]
    assert (run.handoff_ms.tolist(), run.handoff_bytes.tolist()) == ([21.0], [16.0])
    assert (run.replica.tolist(), run.decode_replica.tolist()) == ([0], [1])


def test_received_kv_runs_from_the_next_iteration_of_a_busy_decode_replica():
    """The second comes at 53, while the first decodes 50-61; it is admitted at 61, and its KV is
    there at 77, in 72-83; from 83 on both take 10 + 1 + 1."""
    run = simulate_fleet(asked((0, 8, 5), (30, 8, 1)), TURNS, split(1, 1))
    assert run.seat_wait_ms.tolist() == [0.0, 8.0]
    assert run.progress["received_ms"].tolist() == [39.0, 77.0]
    assert run.first_token_ms.tolist() == [50.0, 95.0]
    assert run.finish_ms.tolist() == [95.0, 95.0]


@pytest.mark.parametrize(("moves_all", "moved"), [(False, 2), (True, 10)])
def test_only_blocks_that_the_destination_lacks_are_moved(moves_all, moved):
    """The first leaves its two blocks on the decode replica; the second has two tokens more."""
    link = replace(LINK, moves_all=moves_all)
    run = simulate_fleet(asked((0, 8, 1, (0, 1)), (1000, 10, 1, (0, 1))), TURNS, split(1, 1, link))
    assert run.handoff_bytes.tolist() == [16.0, 2.0 * moved]
    assert run.handoff_ms.tolist() == [21.0, 5.0 + 2.0 * moved]


def test_received_kv_is_cached_where_its_id_was_evicted_on_the_way():
    """24 blocks on the decode replica. C takes 20 at 95, until 255. A leaves id 0 in a 21st at 118.
    B, from 127 on, takes three at 119, 138 and 182, and at 226 the one with id 0. So C brings id 0
    at 255, amid B's decode, and D lacks four tokens of eight."""
    link = replace(LINK, contention=False)
    requests = asked((0, 80, 1, (0,)), (80, 4, 1, (0,)), (100, 4, 13), (1000, 8, 1, (0,)))
    run = simulate_fleet(requests, TURNS, split(2, 1, link, kv_blocks=24))
    assert run.progress["received_ms"][:3].tolist() == [255.0, 107.0, 127.0]
    assert run.handoff_bytes.tolist() == [160.0, 8.0, 8.0, 8.0]


@pytest.mark.parametrize("together", [1, 2, 3])
@pytest.mark.parametrize("contention", [True, False])
def test_k_transfers_at_once_take_k_times_as_long_as_one(together, contention):
    link = replace(LINK, contention=contention)
    requests = asked(*[(0, 8, 1)] * together)
    run = simulate_fleet(requests, TURNS, split(3, 1, link))
    times = together if contention else 1
    assert run.handoff_ms.tolist() == [5.0 + 16.0 * times] * together


def test_a_transfer_that_begins_later_takes_half_of_the_link():
    """The first has 8 of 16 bytes when the second begins at 31; then 16 ms for the other 8; the
    second has 8 left, alone: to 55."""
    run = simulate_fleet(asked((0, 8, 1), (8, 8, 1)), TURNS, split(2, 1))
    assert run.progress["received_ms"].tolist() == [47.0, 55.0]


def test_a_full_decode_replica_is_waited_for_before_the_transfer_begins():
    """One seat: the second comes at 23, and the first has it until 72."""
    run = simulate_fleet(asked((0, 8, 3), (0, 8, 1)), TURNS, split(2, 1, max_num_seqs=1))
    assert run.seat_wait_ms.tolist() == [0.0, 49.0]
    assert run.handoff_ms.tolist() == [21.0, 21.0]
    assert run.first_token_ms.tolist() == [50.0, 72.0 + 16.0 + 11.0]


def test_the_prefill_replica_keeps_the_blocks_until_they_are_fetched():
    """Room for one prompt: the second is prefilled once the first has been fetched, at 39."""
    run = simulate_fleet(asked((0, 8, 1), (0, 8, 1)), TURNS, split(1, 1, kv_blocks=2))
    assert run.prefills["scheduled_ms"].tolist() == [0.0, 39.0]


def test_wait_prefill_hand_off_and_wait_for_a_seat_add_up_to_the_first_iteration():
    rng = np.random.default_rng(5)
    n = 200
    requests = asked(*zip(np.cumsum(rng.exponential(20.0, n)), [9] * n, [7] * n, strict=True))
    run = simulate_fleet(requests, TURNS, split(2, 2, max_num_seqs=4))
    prefill_ms = run.prefills["finish_ms"] - run.prefills["scheduled_ms"]
    parts = run.queue_wait_ms + prefill_ms + run.handoff_ms + run.seat_wait_ms
    assert run.arrival_ms + parts == pytest.approx(run.progress["received_ms"])
    assert (run.first_token_ms >= run.progress["received_ms"] + 11.0 - 1e-9).all()
    assert (run.seat_wait_ms >= -1e-9).all()


def pairs(run: FleetRun) -> list[tuple[int, int]]:
    return list(zip(run.replica.tolist(), run.decode_replica.tolist(), strict=True))


def test_a_full_decode_replica_is_avoided_by_the_choice_of_the_pair():
    """Both candidates have the same prefill; the first one's decode has no seat left."""
    run = simulate_fleet(asked((0, 8, 50), (100, 8, 1)), SHORTEST, split(1, 2, max_num_seqs=1))
    assert pairs(run) == [(0, 1), (0, 2)]


@pytest.mark.parametrize(("moves_all", "decode"), [(False, 2), (True, 1)])
def test_over_a_slow_link_the_pair_that_has_less_to_move_is_chosen(moves_all, decode):
    """16 bytes take 1.6 s. The first decodes on 1 from 1.6 s to 4.9 s; the second, at 3 s, leaves
    its blocks on 2; the third brings them again, and lacks one token there."""
    link = replace(LINK, bytes_per_ms=0.01, moves_all=moves_all)
    requests = asked((0, 8, 300, (0, 1)), (3000, 8, 1, (2, 3)), (99_000, 9, 1, (2, 3)))
    run = simulate_fleet(requests, SHORTEST, split(1, 2, link, max_num_seqs=1))
    assert pairs(run) == [(0, 1), (0, 2), (0, decode)]


def test_pairs_take_turns_in_both_pools():
    run = simulate_fleet(asked(*[(1000 * k, 8, 1) for k in range(6)]), TURNS, split(2, 3))
    assert pairs(run) == [(0, 2), (1, 3), (0, 3), (1, 4), (0, 4), (1, 2)]


def test_a_split_that_leaves_nobody_to_decode_is_refused():
    with pytest.raises(InputError, match="prefill replicas is 2; expected at most 1"):
        BatchingFleet((ENGINE, ENGINE), replace(LINK, prefill=2))
    with pytest.raises(InputError, match="bytes_per_ms is 0"):
        Split(prefill=1, kv_bytes_per_token=1.0, bytes_per_ms=0.0)
