"""What is believed of a replica's cache, set against what its engine tells; worked out by hand.

A block of text is taken to be 64 tokens. The engine's blocks are of 64 tokens too, but where a test
says otherwise, so that one that is stored stands for one that was sent.
"""

from __future__ import annotations

import numpy as np

from pointsman.dispatch.prefix_index import Chain, PrefixIndex
from pointsman.router.engine.kv_beliefs import KvBeliefs
from pointsman.router.engine.kv_messages import RemovedBlocks, StoredBlocks


def stored(*hashes: int, locality: str | None = None) -> StoredBlocks:
    tokens = [0] * 64 * len(hashes)
    return StoredBlocks(list(hashes), None, tokens, 64, "GPU", None, None, None, None, locality)


def removed(*hashes: int, locality: str | None = None) -> RemovedBlocks:
    return RemovedBlocks(list(hashes), "GPU", None, locality)


class Router:
    """One replica, what is believed of it, and how many requests are in flight there."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.index = PrefixIndex(1, followed=[0])
        self.beliefs = KvBeliefs(self.index, lambda replica: self.in_flight, 64)
        self.index.on_held = self.beliefs.sent

    def send(self, *prompts: int) -> None:
        """Prompts of one block each."""
        for prompt in prompts:
            self.index.hold(Chain([prompt], 64), 0)

    def send_long(self, blocks: int, start: int = 10_000) -> None:
        self.index.hold(Chain(range(start, start + blocks), 64), 0)

    def tell(self, event: StoredBlocks | RemovedBlocks) -> None:
        if isinstance(event, StoredBlocks):
            self.beliefs.stored(0, event)
        else:
            self.beliefs.removed(0, event)

    def believed(self, *prompts: int) -> list[int]:
        return [prompt for prompt in prompts if self._holds(prompt)]

    def _holds(self, prompt: int) -> bool:
        row = np.zeros(1)
        self.index.fill(Chain([prompt], 64), row)
        return row[0] > 0


def full() -> Router:
    """1 to 4 were sent, computed and told of, and then two of the engine's blocks were evicted."""
    router = Router()
    router.send(1, 2, 3, 4)
    router.tell(stored(101, 102, 103, 104))
    router.tell(removed(101, 102))
    return router


def test_no_more_is_believed_than_what_is_held_and_what_was_used_last_is_kept():
    assert full().believed(1, 2, 3, 4) == [3, 4]


def test_a_use_in_between_keeps_a_prompt():
    router = Router()
    router.send(1, 2, 3, 4, 1)
    router.tell(stored(101, 102, 103, 104))
    router.tell(removed(102, 103))
    assert router.believed(1, 2, 3, 4) == [1, 4]


def test_nothing_is_given_up_while_no_block_goes_that_was_told_of():
    router = Router()
    router.send(1, 2, 3, 4)
    router.tell(stored(101))
    router.beliefs.check(0)
    assert router.believed(1, 2, 3, 4) == [1, 2, 3, 4]


def test_of_a_warm_engine_whose_old_blocks_go_nothing_is_given_up():
    router = Router()
    router.send(1, 2)
    router.tell(stored(101, 102))
    router.tell(removed(7, 8, 9))
    assert router.believed(1, 2) == [1, 2]


def test_what_was_sent_and_not_told_yet_stays_believed():
    router = full()
    router.in_flight = 2
    router.send(5, 6)
    router.beliefs.check(0)
    router.tell(removed(103))  # one is held, two are waited for
    assert router.believed(3, 4, 5, 6) == [4, 5, 6]


def test_what_is_told_of_it_takes_the_place_of_what_was_waited_for():
    router = full()
    router.in_flight = 2
    router.send(5, 6)
    router.tell(removed(103, 104))
    assert router.believed(4, 5, 6) == [5, 6]
    router.tell(stored(105))  # one is held, one is waited for
    router.tell(removed(105))
    assert router.believed(5, 6) == [6]


def test_a_request_that_ended_is_not_waited_for():
    router = full()
    router.in_flight = 1
    router.send(5)
    router.tell(removed(103))
    assert router.believed(4, 5) == [4, 5]
    router.in_flight = 0
    router.beliefs.check(0)
    assert router.believed(4, 5) == [5]


def test_requests_that_found_all_their_blocks_count_in_the_order_of_sending():
    router = full()
    router.send(5)
    router.send(5, 5)  # two that are in flight and had nothing new
    router.in_flight = 2
    router.beliefs.check(0)
    assert router.believed(3, 4, 5) == [4, 5]


def test_what_a_block_takes_of_the_cache_is_learned():
    """64 blocks are assumed to have taken 64 tokens each; of 64 more each took 192."""
    router = Router()
    router.send_long(64)
    router.tell(stored(*range(192)))
    assert router.beliefs.tokens_a_block(0) == 128
    router.tell(removed(*range(128)))  # 64 blocks of 64 tokens are left
    assert router.index.believed(0) == 32


def fill(router: Router, rounds: range, tokens_a_block: int) -> None:
    """A round sends and stores four blocks of text; the cache holds those of 16 rounds."""
    for number in rounds:
        router.send_long(4, 1000 * number)
        router.tell(stored(*range(1000 * number, 1000 * number + tokens_a_block // 16)))
        old = 1000 * (number - 16)
        router.tell(removed(*range(old, old + 12)))
        router.beliefs.check(0)


def test_what_a_block_takes_is_learned_anew_when_the_traffic_changes():
    router = Router()
    fill(router, range(100, 200), tokens_a_block=192)
    assert 180 <= router.beliefs.tokens_a_block(0) <= 200
    fill(router, range(200, 300), tokens_a_block=64)
    assert 60 <= router.beliefs.tokens_a_block(0) <= 68
    assert 60 <= router.index.believed(0) <= 68


def test_what_is_learned_stays_within_bounds():
    router = Router()
    router.tell(stored(*range(5000)))
    assert router.beliefs.tokens_a_block(0) == 1024
    router = Router()
    for number in range(20):
        router.send_long(500, 1000 * number)
        router.beliefs.check(0)
    assert router.beliefs.tokens_a_block(0) == 16


def test_a_replica_that_was_cleared_is_forgotten_and_believed_in_as_at_first():
    router = full()
    router.beliefs.cleared(0)
    assert router.believed(3, 4) == []
    router.send(1, 2, 3)
    router.tell(stored(103))
    router.tell(removed(104))  # of before
    assert router.believed(1, 2, 3) == [1, 2, 3]
    assert router.beliefs.held_tokens(0) == 64


def test_a_store_that_engines_share_is_no_cache_of_the_replica():
    router = full()
    router.tell(stored(900, 901, locality="REMOTE"))
    router.tell(removed(103, locality="REMOTE"))
    assert router.beliefs.held_tokens(0) == 128
    assert router.believed(3, 4) == [3, 4]


def test_more_is_not_believed_again_because_more_is_held():
    router = full()
    router.tell(stored(105, 106))
    assert router.believed(1, 2, 3, 4) == [3, 4]
