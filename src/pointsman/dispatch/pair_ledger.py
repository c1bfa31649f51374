"""The router's account where prefill and decode are apart.

A request counts on both replicas of its pair from its choice on, as in the simulator:

    slot      known as   counts on              until
    decode    n          the decode replica     the request ends
    prefill   ~n         the prefill replica    its prefill is answered, or given up
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.ledger import Ledger
from pointsman.dispatch.pair_kernels import (
    assume_first_token_at,
    expected_decode,
    expected_handoff,
    learn_handoff,
)
from pointsman.dispatch.record import Pair
from pointsman.policies.in_flight import NONE


@dataclass(frozen=True, slots=True)
class Pairs:
    """The candidates, by number. ``moves_all``: a hand-off moves what the destination holds too."""

    numbered: Sequence[Pair]
    moves_all: bool = False


def pairs_of(prefills: Sequence[int], decodes: Sequence[int]) -> list[Pair]:
    """The candidates: all pairs, so that one after the other takes turns in both pools, as in the
    simulator; then each decode replica by itself."""
    turns = (divmod(k, len(prefills)) for k in range(len(prefills) * len(decodes)))
    both: list[Pair] = [(prefills[p], decodes[(turn + p) % len(decodes)]) for turn, p in turns]
    return both + [(decode, None) for decode in decodes]


class PairLedger(Ledger):
    """Requests in flight on pairs; a request's slot is that of its decode."""

    def __init__(self, facts: Sequence[ReplicaFacts], pairs: Pairs) -> None:
        super().__init__(facts, pairs=len(pairs.numbered))
        self.prefills: dict[int, int] = {}  # by slot, that of the prefill that is not answered
        self.live.link["moves_all"] = int(pairs.moves_all)
        for number, (prefill, decode) in enumerate(pairs.numbered):
            self.live.pairs[number]["prefill"] = prefill
            self.live.pairs[number]["decode"] = NONE if decode is None else decode

    def send(
        self, replica: int, tokens: tuple[int, int], now_ms: float, shows_first_token: bool
    ) -> int:
        """A request goes to the pair of that number; ``tokens`` of its prompt, and those that the
        prefill replica lacks. Its slot."""
        pair = self.live.pairs[replica]
        prefill, decode = int(pair["prefill"]), int(pair["decode"])
        if decode == NONE:
            return super().send(prefill, tokens, now_ms, shows_first_token)
        number = self.next_number
        self.next_number += 1
        slot, before = self.reserve(number), self.reserve(~number)
        self._sent(self.handle, (before, prefill, *tokens), now_ms, True)
        self._sent(self.handle, (slot, decode, tokens[0], 0), now_ms, True)
        self.prefills[slot] = before
        return slot

    def prefilled(self, slot: int, assumed_first_ms: float | None, now_ms: float) -> None:
        """Its prefill was answered; when its first token is taken to come, if it will not show."""
        before = self.prefills.pop(slot)
        self.first_token(before, now_ms)
        super().end(before, None, now_ms)
        if assumed_first_ms is not None:
            assume_first_token_at(self.handle, slot, assumed_first_ms)

    def expected_first_ms(self, slot: int, handoff_ms: float, now_ms: float) -> float:
        """When the first token comes if the hand-off begins now and takes so long."""
        return now_ms + handoff_ms + self.expected_decode_ms(slot, now_ms)

    def expected_decode_ms(self, slot: int, now_ms: float) -> float:
        """Of one that waits for its first token: wait and iteration on its decode replica."""
        return float(expected_decode(self.handle, slot, now_ms))

    def expected_handoff(self, pair: int, prompt_tokens: int) -> tuple[float, float]:
        """Tokens moved of the prompt being routed, and what that is expected to take."""
        return expected_handoff(self.handle, pair, float(prompt_tokens))  # type: ignore[no-any-return]

    def handed_off(self, pair: int, tokens: float, took_ms: float) -> None:
        """A hand-off of so many tokens took so long."""
        learn_handoff(self.handle, pair, tokens, took_ms)

    def fall_back(
        self, slot: int, uncached_tokens: int, now_ms: float, shows_first_token: bool
    ) -> None:
        """The decode replica computes the prompt, of which it lacks so many tokens."""
        self._give_up_prefill(slot, now_ms)
        number, record = self.numbers[slot], self.live.slots[slot]
        request = (int(record["replica"]), int(record["prompt_tokens"]), uncached_tokens)
        super().end(slot, None, now_ms)
        again = self.reserve(number)
        assert again == slot, "the slot that was freed last"
        self._sent(self.handle, (slot, *request), now_ms, shows_first_token)

    def end(self, slot: int, output_tokens: int | None, now_ms: float) -> None:
        """It ended, on both."""
        self._give_up_prefill(slot, now_ms)
        super().end(slot, output_tokens, now_ms)

    def adopt(self, slots: dict[int, int]) -> None:
        """Of a ledger that was made of a snapshot: slots by number."""
        self.prefills = {slots[~n]: slot for n, slot in slots.items() if n < 0}

    def check_invariants(self) -> None:
        """As ever, and each prefill is that of a request in flight."""
        super().check_invariants()
        for slot, before in self.prefills.items():
            assert self.numbers[before] == ~self.numbers[slot]

    def _give_up_prefill(self, slot: int, now_ms: float) -> None:
        before = self.prefills.pop(slot, None)
        if before is not None:
            super().end(before, None, now_ms)
