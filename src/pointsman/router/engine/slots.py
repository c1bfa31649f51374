"""The use of llama.cpp's KV cache, which it tells in ``/slots`` only."""

from __future__ import annotations

import msgspec

from pointsman.core.errors import InputError


class _Slot(msgspec.Struct):
    n_ctx: int
    is_processing: bool
    n_prompt_tokens: int | None = None  # with what was generated; absent until first used


_SLOTS = msgspec.json.Decoder(list[_Slot])


def kv_use_of_slots(body: bytes) -> float | None:
    """The part of all slots' contexts that requests hold now; None where there is no slot.

    Tokens kept for the next request of an idle slot do not count: they give way to it. Raises
    InputError where the body is no list of slots.
    """
    try:
        slots = _SLOTS.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"/slots: {error}; expected llama.cpp's list of slots") from None
    capacity = sum(slot.n_ctx for slot in slots)
    held = [slot.n_prompt_tokens for slot in slots if slot.is_processing]
    if capacity <= 0 or None in held:
        return None
    fraction = sum(tokens or 0 for tokens in held) / capacity
    return fraction if 0 <= fraction <= 1 else None
