from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.errors import InputError
from pointsman.dispatch.prefix_index import Chain, PrefixIndex

TREE = st.lists(st.integers(0, 2), max_size=6)

A_BLOCK = 32  # bytes, at 64 replicas or fewer: a hash, two links, a word of holders, two slots


def chain(*path: int) -> Chain:
    """Blocks of 10 tokens whose hashes cover everything before them."""
    return Chain([hash(path[: end + 1]) & (2**64 - 1) for end in range(len(path))], 10)


def cached(index: PrefixIndex, asked: Chain, replicas: int = 2) -> list[float]:
    row = np.full(replicas, -1.0)
    index.fill(asked, row)
    return row.tolist()


def room_for(blocks: int, replicas: int) -> PrefixIndex:
    return PrefixIndex(replicas, A_BLOCK * blocks)


def test_an_unknown_prefix_is_held_by_nobody():
    assert cached(PrefixIndex(2), chain(1, 2, 3)) == [0, 0]


def test_whoever_was_sent_a_prefix_holds_what_others_share_of_it():
    index = PrefixIndex(2)
    index.hold(chain(1, 2, 3), 1)
    index.hold(chain(1), 0)
    assert cached(index, chain(1, 2, 4)) == [10, 20]


def test_an_empty_chain_is_held_by_nobody_and_takes_no_place():
    index = PrefixIndex(2)
    index.hold(chain(), 0)
    assert cached(index, chain()) == [0, 0]
    assert len(index) == 0


def test_a_full_index_forgets_the_block_that_was_unused_longest():
    index = room_for(3, 1)
    for path in ((1,), (2,), (3,), (1,), (4,)):
        index.hold(chain(*path), 0)
    assert [cached(index, chain(k), 1)[0] for k in (1, 2, 3, 4)] == [10, 0, 10, 10]


def test_a_chain_is_forgotten_from_its_end():
    index = room_for(3, 1)
    index.hold(chain(1, 2, 3), 0)
    index.hold(chain(9), 0)
    assert cached(index, chain(1, 2, 3), 1) == [20]


def test_making_room_keeps_the_leading_blocks_that_are_asked_for():
    index = room_for(3, 2)
    index.hold(chain(1), 0)
    index.hold(chain(8), 0)
    index.hold(chain(9), 0)
    index.hold(chain(1, 2), 1)
    assert cached(index, chain(1, 2)) == [10, 20]


def test_a_chain_longer_than_the_index_is_held_as_far_as_it_fits():
    index = room_for(3, 1)
    index.hold(chain(1, 2, 3, 4, 5), 0)
    assert cached(index, chain(1, 2, 3, 4, 5), 1) == [30]


def test_a_block_that_was_forgotten_comes_back_without_its_holders():
    index = room_for(2, 2)
    index.hold(chain(1), 0)
    index.hold(chain(2, 3), 1)
    index.hold(chain(1), 1)
    assert cached(index, chain(1)) == [0, 10]


def test_the_bound_is_one_of_bytes_and_more_replicas_leave_fewer_blocks():
    assert PrefixIndex(64, 3200).max_blocks == 100
    assert PrefixIndex(65, 3200).max_blocks == 80  # 40 bytes a block
    assert PrefixIndex(1, 3231).size_bytes == 3200
    with pytest.raises(InputError, match="max_bytes is 63"):
        PrefixIndex(1, 63)


def test_a_replica_that_was_started_anew_holds_nothing_and_the_others_what_they_held():
    index = PrefixIndex(70)
    for replica in (2, 66, 69):
        index.hold(chain(1, 2), replica)
    index.forget(66)
    row = cached(index, chain(1, 2), 70)
    assert [row[replica] for replica in (2, 66, 69)] == [20, 0, 20]
    index.hold(chain(1), 66)
    assert cached(index, chain(1, 2), 70)[66] == 10


def test_of_a_replica_that_holds_less_its_least_recently_used_blocks_are_given_up():
    index = PrefixIndex(2, followed=[1])
    for path in ((1,), (2,), (3,), (1,)):
        index.hold(chain(*path), 1)
    assert index.believe_at_most(1, 2) == 1
    assert [cached(index, chain(k))[1] for k in (1, 2, 3)] == [10, 0, 10]
    assert index.believed(1) == 2


def test_what_was_used_last_counts_for_each_replica_by_itself():
    index = PrefixIndex(2, followed=[0, 1])
    index.hold(chain(1), 0)
    index.hold(chain(2), 0)
    index.hold(chain(1), 1)  # no use of it on replica 0
    index.believe_at_most(0, 1)
    assert [cached(index, chain(k)) for k in (1, 2)] == [[0, 10], [10, 0]]


def test_a_prompt_is_given_up_from_its_end():
    index = PrefixIndex(2, followed=[0])
    index.hold(chain(1, 2, 3), 0)
    index.hold(chain(1, 2, 3), 1)
    assert index.believe_at_most(0, 2) == 1
    assert cached(index, chain(1, 2, 3)) == [20, 30]


def test_what_was_given_up_is_held_again_once_it_is_sent_again():
    index = PrefixIndex(1, followed=[0])
    told: list[tuple[int, int]] = []
    index.on_held = lambda replica, new_blocks: told.append((replica, new_blocks))
    index.hold(chain(1, 2, 3), 0)
    index.believe_at_most(0, 1)
    index.hold(chain(1, 2, 3), 0)
    index.hold(chain(), 0)
    assert cached(index, chain(1, 2, 3), 1) == [30]
    assert told == [(0, 3), (0, 2), (0, 0)]


def test_a_replica_that_is_not_followed_says_nothing_of_what_it_was_sent():
    index = PrefixIndex(2, followed=[1])
    index.on_held = lambda replica, new_blocks: pytest.fail("it is not followed")
    index.hold(chain(1), 0)


def test_half_of_the_bytes_are_for_the_order_of_use_on_followed_replicas():
    index = PrefixIndex(2, 32 * 6 * 2, followed=[0, 1])  # 192 bytes: 6 blocks of 32, 8 of 24
    assert index.max_blocks == 6
    for k in range(5):
        index.hold(chain(k), 0)
    assert [cached(index, chain(k))[0] for k in range(5)] == [0, 10, 10, 10, 10]
    assert index.size_bytes == 384
    with pytest.raises(InputError, match="max_bytes is 95; expected an integer in 96"):
        PrefixIndex(2, 95, followed=[0, 1])


def test_many_blocks_are_given_up_little_by_little():
    index = PrefixIndex(1, followed=[0])
    for start in range(0, 5000, 500):
        index.hold(Chain(range(start, start + 500), 10), 0)
    assert [index.believe_at_most(0, 10) for _ in range(4)] == [2048, 2048, 894, 0]
    assert cached(index, Chain(range(4500, 4520), 10), 1) == [100]


def test_what_the_whole_index_forgot_can_be_given_up_and_held_again():
    index = PrefixIndex(2, 32 * 2 * 2, followed=[0])  # 2 blocks, and 2 of the order
    index.hold(chain(1), 0)
    index.hold(chain(2, 3), 1)
    index.hold(chain(1), 1)
    assert cached(index, chain(1)) == [0, 10]
    index.hold(chain(1), 0)
    assert cached(index, chain(1)) == [10, 10]
    assert index.believe_at_most(0, 0) == 1
    assert cached(index, chain(1)) == [0, 10]


def test_a_million_different_chains_take_no_more_memory_than_the_first_of_them():
    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    index = PrefixIndex(4, 1 << 20)
    random = np.random.default_rng(1)
    early = 0
    for batch in range(100):
        hashes = random.integers(0, 1 << 64, size=(10_000, 2), dtype=np.uint64)
        for number, pair in enumerate(hashes):
            index.hold(Chain(pair, 64), number % 4)
        if batch == 9:
            early = resident_bytes()
    assert len(index) == index.max_blocks == 32_768
    assert resident_bytes() - early < 4 << 20
    index.check_invariants()


@given(st.lists(st.tuples(TREE, st.integers(0, 69)), max_size=40), TREE)
def test_an_index_that_is_large_enough_finds_the_longest_prefix_on_every_replica(held, asked):
    index = PrefixIndex(70)
    for path, replica in held:
        index.hold(chain(*path), replica)
    expected = [0.0] * 70
    for path, replica in held:
        shared = 0
        while shared < min(len(path), len(asked)) and path[shared] == asked[shared]:
            shared += 1
        expected[replica] = max(expected[replica], 10.0 * shared)
    assert cached(index, chain(*asked), 70) == expected


def test_a_replica_that_is_added_holds_nothing_until_it_is_sent_something():
    index = PrefixIndex(1)
    index.hold(chain(1, 2), 0)
    assert index.add_replica() == 1
    assert cached(index, chain(1, 2)) == [20, 0]
    index.hold(chain(1), 1)
    assert cached(index, chain(1, 2)) == [20, 10]


def test_the_65th_replica_costs_the_blocks_that_were_unused_longest():
    index = room_for(5, 64)  # 160 bytes: four blocks of 40
    for path in (1, 2, 3, 4, 5, 1):
        index.hold(chain(path), 63)
    assert index.add_replica() == 64
    index.hold(chain(5), 64)
    held = [cached(index, chain(path), 65) for path in (1, 2, 3, 4, 5)]
    assert [row[63] for row in held] == [10, 0, 10, 10, 10]
    assert [row[64] for row in held] == [0, 0, 0, 0, 10]
    index.check_invariants()


class PlainIndex:
    """The same in plain lists: blocks from the one unused longest on, each with its holders.

    ``orders``: of each followed replica its own blocks, from the one unused there longest on.
    """

    def __init__(self, max_blocks: int, followed: tuple[int, ...] = (), most_own: int = 0) -> None:
        self.max_blocks = max_blocks
        self.most_own = most_own
        self.blocks: list[tuple[int, set[int]]] = []
        self.orders: dict[int, list[int]] = {replica: [] for replica in followed}

    def hold(self, hashes: list[int], replica: int) -> None:
        own = hashes[: self.max_blocks]
        if replica in self.orders:
            own = own[: self.most_own]
            others = [block for block in self.orders[replica] if block not in own]
            self.orders[replica] = others + own[::-1]
            self.give_up(replica, self.most_own)
        known = dict(self.blocks)
        others = [block for block in self.blocks if block[0] not in own]
        keep = self.max_blocks - len(own)
        used = [(block, known.get(block, set()) | {replica}) for block in reversed(own)]
        self.blocks = (others[-keep:] if keep else []) + used

    def give_up(self, replica: int, most: int) -> None:
        order = self.orders[replica]
        while len(order) > most:
            dict(self.blocks).get(order.pop(0), set()).discard(replica)

    def forget(self, replica: int) -> None:
        for _, holders in self.blocks:
            holders.discard(replica)
        self.orders.get(replica, []).clear()

    def cached(self, hashes: list[int], replicas: int) -> list[float]:
        known = dict(self.blocks)
        return [float(10 * self._held(known, hashes, replica)) for replica in range(replicas)]

    @staticmethod
    def _held(known: dict[int, set[int]], hashes: list[int], replica: int) -> int:
        held = 0
        while held < len(hashes) and replica in known.get(hashes[held], ()):
            held += 1
        return held


ACTIONS = st.lists(st.tuples(TREE, st.integers(0, 64), st.sampled_from("hhhhf")), max_size=40)


@given(ACTIONS, TREE, st.integers(2, 12))
def test_a_small_index_does_what_plain_lists_do_and_stays_within_its_bound(
    actions, asked, max_blocks
):
    index, plain = PrefixIndex(65, 40 * max_blocks), PlainIndex(max_blocks)
    for path, replica, action in actions:
        if action == "h":
            index.hold(chain(*path), replica)
            plain.hold(chain(*path).hashes, replica)
        else:
            index.forget(replica)
            plain.forget(replica)
        index.check_invariants()
        for wanted in (path, asked):
            expected = plain.cached(chain(*wanted).hashes, 65)
            assert cached(index, chain(*wanted), 65) == expected


CORRECTED = st.lists(
    st.tuples(TREE, st.integers(0, 2), st.sampled_from("hhhhhgf"), st.integers(0, 6)), max_size=60
)


@given(CORRECTED, TREE, st.integers(2, 12))
def test_an_index_that_is_corrected_does_what_plain_lists_do(actions, asked, blocks):
    """Two of three replicas are followed; the index has room for fewer blocks, or their orders."""
    index = PrefixIndex(3, 2 * A_BLOCK * blocks, followed=[0, 2])
    plain = PlainIndex(blocks, (0, 2), A_BLOCK * blocks // 2 // 24)
    for path, replica, action, most in actions:
        if action == "h":
            index.hold(chain(*path), replica)
            plain.hold(chain(*path).hashes, replica)
        elif action == "f":
            index.forget(replica)
            plain.forget(replica)
        elif replica != 1:
            index.believe_at_most(replica, most)
            plain.give_up(replica, most)
        index.check_invariants()
        assert [index.believed(r) for r in (0, 2)] == [len(plain.orders[r]) for r in (0, 2)]
        for wanted in (path, asked):
            assert cached(index, chain(*wanted), 3) == plain.cached(chain(*wanted).hashes, 3)
