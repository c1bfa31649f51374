"""The router's own account of its replicas: what it sent there, and what came back.

It changes only with requests and with what engines say; each is counted at the instant at which it
happens. The router calls these functions as things happen, the replay as a log tells of them: the
same calls in the same order come to the same state, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pointsman.dispatch.expected_wait import expected_wait
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.live import Live, grown, idle_live
from pointsman.dispatch.live_kernels import (
    ended,
    first_token,
    handle_of_live,
    read_gauges,
    sent,
)
from pointsman.dispatch.pair_kernels import fill_view
from pointsman.policies.in_flight import InFlight
from pointsman.policies.policy import View
from pointsman.workload.workload import Floats

Ids = NDArray[np.int32]

FIRST_SLOTS = 256

# The kernels that every choice needs: where they are not in the cache, nor are most of the others.
ALWAYS_NEEDED = (fill_view, sent)


class Needs(NamedTuple):
    """What a held request brings to the replica that it is held for: the time of its prefill there,
    its uncached tokens and those of its prompt, as it is priced."""

    work_ms: float
    uncached_tokens: int
    prompt_tokens: int


class Asked(NamedTuple):
    """One request as the view is filled for it.

    ``sizes``: tokens of its prompt, as it is priced, and a bit for each row that the policy is
    shown. ``views``: where all that is known is written, and what the policy is shown of it.
    """

    now_ms: float
    sizes: tuple[int, int]
    candidates: Ids
    views: tuple[View, View]


class Ledger:
    """Requests in flight by replica; a request is known by the slot that it got when it was sent.

    ``room``: how many replicas there may be in all; those beyond ``facts`` are added later.
    """

    def __init__(
        self, facts: Sequence[ReplicaFacts], room: int | None = None, pairs: int = 0
    ) -> None:
        self.live: Live = idle_live(room or len(facts), FIRST_SLOTS, pairs)
        self.handle = handle_of_live(self.live)
        self.count = 0
        # Looked up once: each is called for every request.
        self._fill, self._sent = fill_view.dispatcher, sent.dispatcher
        self._first_token, self._ended = first_token.dispatcher, ended.dispatcher
        self._free = list(range(FIRST_SLOTS - 1, -1, -1))
        self.next_number = 0  # of the next request that is sent or held, as the log counts them
        self.numbers: dict[int, int] = {}  # by slot, of the requests in flight
        self.held: dict[int, tuple[int, Needs]] = {}  # by number: for which replica
        for each in facts:
            self.add(each)

    @property
    def room(self) -> int:
        """How many replicas there may be in all."""
        return len(self.live.replicas)

    @property
    def known(self) -> InFlight:
        """What a policy that reads ``in_flight`` gets."""
        return self.live.in_flight

    @property
    def in_flight(self) -> int:
        """Requests in flight on all replicas."""
        return len(self.live.slots) - len(self._free)

    @property
    def requests(self) -> Floats:
        """Requests in flight by replica."""
        return self.live.in_flight.accounts["requests"][: self.count]

    def add(self, facts: ReplicaFacts) -> int:
        """One more replica, nothing in flight there; its number."""
        assert self.count < self.live.replicas.shape[0], "no room for a further replica"
        record = self.live.replicas[self.count]
        for name, value in msgspec.structs.asdict(facts.costs).items():
            record[name] = value
        record["max_num_seqs"], record["kv_tokens"] = facts.max_num_seqs, facts.kv_tokens
        self.count += 1
        return self.count - 1

    @property
    def cached(self) -> Floats:
        """By replica: tokens of the prompt being routed that it holds; to be filled before the
        view is."""
        return self.live.cached

    def fill(self, asked: Asked) -> float:
        """Write the view; the longest hit of any candidate."""
        return self._fill(  # type: ignore[no-any-return]
            self.handle, asked.sizes, asked.candidates, asked.now_ms, asked.views
        )

    def send(
        self, replica: int, tokens: tuple[int, int], now_ms: float, shows_first_token: bool
    ) -> int:
        """A request goes there; ``tokens`` of its prompt, and the uncached ones. Its slot."""
        slot = self.reserve(self.next_number)
        self.next_number += 1
        self._sent(self.handle, (slot, replica, *tokens), now_ms, shows_first_token)
        return slot

    def reserve(self, number: int) -> int:
        """A slot for the request of that number; in a ledger that was idle 0, 1, 2, ..."""
        if not self._free:
            self._grow()
        slot = self._free.pop()
        self.numbers[slot] = number
        return slot

    def first_token(self, slot: int, now_ms: float) -> None:
        """Its first token came back."""
        self._first_token(self.handle, slot, now_ms)

    def end(self, slot: int, output_tokens: int | None, now_ms: float) -> None:
        """It ended, in whatever way; ``output_tokens`` where the engine counted them."""
        self._ended(self.handle, slot, -1 if output_tokens is None else output_tokens, now_ms)
        self._free.append(slot)
        del self.numbers[slot]

    def read(self, replica: int, gauges: tuple[float, float, float], now_ms: float) -> None:
        """Its engine said how many wait and run there, and its KV use; NaN: not known."""
        read_gauges(self.handle, replica, gauges, now_ms)

    # Those that the router holds back.

    def hold(self, replica: int, needs: Needs) -> int:
        """A request is held for the replica, and counts there from now on; its number."""
        number = self.next_number
        self.next_number += 1
        self.held[number] = replica, needs
        awaited = self.live.awaited[replica]
        awaited["requests"] += 1.0
        for name in Needs._fields:
            awaited[name] += getattr(needs, name)
        return number

    def let_go(self, number: int) -> None:
        """It is held for its replica no more."""
        replica, needs = self.held.pop(number)
        awaited = self.live.awaited[replica]
        awaited["requests"] -= 1.0
        for name in Needs._fields:
            awaited[name] -= getattr(needs, name)
        if awaited["requests"] == 0.0:  # sums of doubles leave crumbs
            awaited["work_ms"] = 0.0

    def held_for(self, replica: int) -> int:
        """How many are."""
        return int(self.live.awaited["requests"][replica])

    @contextmanager
    def trying(self, replica: int) -> Iterator[None]:
        """Meanwhile those held for the replica do not count: one of them is tried."""
        is_tried = self.live.awaited["is_tried"]
        is_tried[replica] = 1
        try:
            yield
        finally:
            is_tried[replica] = 0

    def expected_wait(
        self, replica: int, prompt_tokens: int, now_ms: float, limit_ms: float
    ) -> tuple[float, float]:
        """The wait there for such a prompt, those held not counted, and when it will have fallen to
        the limit by itself; inf: something must happen there first."""
        return expected_wait(self.handle, replica, prompt_tokens, now_ms, limit_ms)  # type: ignore[no-any-return]

    def pending_ms(self, replica: int) -> float:
        """Prefill sent there whose first token has not come."""
        return float(self.live.in_flight.accounts["pending_ms"][replica])

    def check_invariants(self) -> None:
        """Nobody is counted twice, or below zero."""
        accounts = self.live.in_flight.accounts
        used = self.live.slots.shape[0] - len(self._free)
        assert accounts["requests"].sum() == used, "requests in flight and slots in use differ"
        assert len(self.numbers) == used, "numbered requests and slots in use differ"
        assert (accounts["requests"] >= accounts["decoding"]).all()
        assert (accounts["decoding"] == accounts["counts"]).all()
        assert (accounts["decoding"] >= 0).all()
        idle = accounts["requests"] == 0
        for name in ("context_tokens", "decoding_tokens", "pending_ms", "pending_tokens"):
            assert (accounts[name][idle] == 0).all(), name
        awaited = self.live.awaited
        assert awaited["requests"].sum() == len(self.held)
        assert not awaited["is_tried"].any()
        for name in Needs._fields:
            assert (awaited[name][awaited["requests"] == 0] == 0).all(), name

    def _grow(self) -> None:
        count = self.live.slots.shape[0]
        self.live = grown(self.live, 2 * count)
        self.handle = handle_of_live(self.live)
        self._free = list(range(2 * count - 1, count - 1, -1))
