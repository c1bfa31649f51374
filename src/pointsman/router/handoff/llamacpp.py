"""llama.cpp: a slot of the prefill replica is saved to a file, and restored on the decode replica.

Both are started with --slot-save-path on one folder. Source: llama.cpp's server, run live
(/props, /slots/ID?action=save and restore, ``id_slot`` and ``n_predict`` of a completion).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from pointsman.router.handoff.bodies import Fields, answers_in, value
from pointsman.router.handoff.protocol import NO_ROOM, SEVERAL, TRANSFER_FAILED, Legs

Hashes = NDArray[np.uint64]

_NO_CHAIN: Hashes = np.zeros(0, dtype=np.uint64)
_LIMITS = ("max_tokens", "max_completion_tokens", "stream_options", "n_predict")


class _Props(msgspec.Struct):
    total_slots: int


class _Moved(msgspec.Struct):
    n_written: int | None = None


_PROPS, _MOVED = msgspec.json.Decoder(_Props), msgspec.json.Decoder(_Moved)


class Slots:
    """The slots of one replica: those that are free, unused longest first, and what each holds."""

    def __init__(self, count: int) -> None:
        self.free: dict[int, Hashes] = dict.fromkeys(range(count), _NO_CHAIN)

    def take(self, chain: Hashes, *, reuses: bool) -> int | None:
        """A slot; where it ``reuses``, that which holds most of the prompt. None: none is free."""
        if not self.free:
            return None
        slot = next(iter(self.free))
        if reuses:
            slot = max(self.free, key=lambda each: _common(self.free[each], chain))
        del self.free[slot]
        return slot

    def give_back(self, slot: int, chain: Hashes) -> None:
        """It is free, and holds this prompt."""
        self.free[slot] = chain


class LlamaCpp:
    """The files bear the numbers of replicas and slots, so that they are written over."""

    name = "llamacpp"
    moves_all = True
    decodes_alone = True
    reserved = frozenset(("id_slot",))

    def __init__(self) -> None:
        self._run = f"{secrets.randbits(64):016x}"  # another router may use the same folder
        self._slots: dict[int, Slots] = {}

    async def hand_over(self, legs: Legs) -> Fields:
        """Prefill on a slot, save it, restore it, and the request on that slot."""
        if answers_in(legs.fields) is not None:
            raise legs.failure(SEVERAL, "is asked for several answers, which have no one cache")
        here = await self._slots_of(legs, legs.prefill_number)
        there = await self._slots_of(legs, legs.decode_number)
        target = there.take(legs.chain, reuses=False)
        if target is None:
            raise legs.failure(NO_ROOM, "has no slot on the decode replica")
        legs.at_end(lambda: there.give_back(target, legs.chain))
        size_bytes = await self._move(legs, here, target)
        legs.handed_off(size_bytes)
        return {**legs.fields, "id_slot": value(target), "cache_prompt": value(True)}

    async def _move(self, legs: Legs, here: Slots, target: int) -> int | None:
        """What the cache has of bytes, as the replica says."""
        source = here.take(legs.chain, reuses=True)
        if source is None:
            raise legs.failure(NO_ROOM, "has no free slot")
        try:
            asked = {name: raw for name, raw in legs.fields.items() if name not in _LIMITS}
            asked |= {"n_predict": value(0), "stream": value(False), "cache_prompt": value(True)}
            await legs.prefill({**asked, "id_slot": value(source)})
            name = f"pointsman-{self._run}-{legs.prefill_number}-{source}.bin"
            body = msgspec.json.encode({"filename": name})
            saved = await legs.call_prefill(b"POST", b"/slots/%d?action=save" % source, body)
            await legs.call_decode(b"POST", b"/slots/%d?action=restore" % target, body)
        finally:
            here.give_back(source, legs.chain)
        return _written(saved)

    async def _slots_of(self, legs: Legs, number: int) -> Slots:
        slots = self._slots.get(number)
        if slots is None:
            ask = legs.call_prefill if number == legs.prefill_number else legs.call_decode
            try:
                count = _PROPS.decode(await ask(b"GET", b"/props", b"")).total_slots
            except msgspec.MsgspecError:
                raise legs.failure(TRANSFER_FAILED, "does not say its slots by /props") from None
            slots = self._slots.setdefault(number, Slots(count))
        return slots


def _written(saved: bytes) -> int | None:
    try:
        return _MOVED.decode(saved).n_written
    except msgspec.MsgspecError:
        return None


def _common(held: Sequence[int] | Hashes, chain: Hashes) -> int:
    """Leading blocks in common: each hash covers all before it."""
    shorter = min(len(held), len(chain))
    same = np.equal(held[:shorter], chain[:shorter])
    return shorter if same.all() else int(same.argmin())
