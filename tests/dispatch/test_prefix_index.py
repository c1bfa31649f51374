import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.ledger import Asked, Ledger
from pointsman.dispatch.prefix_index import Chain, PrefixIndex
from pointsman.policies.policy import CACHED_TOKENS, ROWS

TREE = st.lists(st.integers(0, 2), max_size=6)


def chain(*path: int) -> Chain:
    """Blocks of 10 tokens whose hashes cover everything before them."""
    return Chain([hash(path[: end + 1]) & (2**64 - 1) for end in range(len(path))], 10)


def cached(index: PrefixIndex, asked: Chain, replicas: int = 2) -> list[float]:
    """As the ledger reads it, for a prompt that is longer than the chain."""
    ledger = Ledger([ReplicaFacts()] * replicas)
    views = np.empty((ROWS, replicas)), np.empty((ROWS, replicas))
    candidates = np.arange(replicas, dtype=np.int32)
    ledger.fill(Asked(0.0, (1 << 20, 0), candidates, views), index.known(asked))
    return views[0][CACHED_TOKENS].tolist()


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
    index = PrefixIndex(1, max_blocks=3)
    for path in ((1,), (2,), (3,), (1,), (4,)):
        index.hold(chain(*path), 0)
    assert [cached(index, chain(k), 1)[0] for k in (1, 2, 3, 4)] == [10, 0, 10, 10]


def test_a_chain_is_forgotten_from_its_end():
    index = PrefixIndex(1, max_blocks=3)
    index.hold(chain(1, 2, 3), 0)
    index.hold(chain(9), 0)
    assert cached(index, chain(1, 2, 3), 1) == [20]


def test_making_room_keeps_the_leading_blocks_that_are_asked_for():
    index = PrefixIndex(2, max_blocks=3)
    index.hold(chain(1), 0)
    index.hold(chain(8), 0)
    index.hold(chain(9), 0)
    index.hold(chain(1, 2), 1)
    assert cached(index, chain(1, 2)) == [10, 20]


def test_a_chain_longer_than_the_index_is_held_as_far_as_it_fits():
    index = PrefixIndex(1, max_blocks=3)
    index.hold(chain(1, 2, 3, 4, 5), 0)
    assert cached(index, chain(1, 2, 3, 4, 5), 1) == [30]


def test_a_block_that_was_forgotten_comes_back_without_its_holders():
    index = PrefixIndex(2, max_blocks=1)
    index.hold(chain(1), 0)
    index.hold(chain(2), 1)
    index.hold(chain(1), 1)
    assert cached(index, chain(1)) == [0, 10]


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


@given(st.lists(st.tuples(TREE, st.integers(0, 1)), max_size=40), st.integers(1, 8))
def test_a_small_index_stays_within_its_bound(held, max_blocks):
    index = PrefixIndex(2, max_blocks)
    for path, replica in held:
        index.hold(chain(*path), replica)
        index.check_invariants()
        assert cached(index, chain(*path))[replica] == 10 * min(len(path), max_blocks)
