"""What engines publish of their KV cache's blocks, decoded from every layout that is in use.

A message's payload is msgpack: an instant, a list of events, perhaps a data-parallel rank. In
older versions events are arrays, cut off where only defaults follow; in newer ones they are maps
with a ``type``, and at times the batch is a map too. Fields that come after those below, or have
other names, are passed over. Sources:
vllm-project/vllm, vllm/distributed/kv_events.py (0.32: maps in an array; @0181ea3: all maps);
sgl-project/sglang, python/sglang/srt/disaggregation/kv_events.py (@006d053: arrays; 0.5.23: maps
in an array).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from pointsman.core.errors import InputError

BlockHash = int | bytes


@dataclass(frozen=True, slots=True)
class StoredBlocks:
    """Blocks that a cache holds from now on: a piece of a chain that goes on from ``parent``.

    ``token_ids`` are those of all these blocks, ``block_size`` tokens each. Two chains of equal
    tokens are the same prefix only where ``adapter``, ``salt`` and ``extra_keys`` (of vLLM, a list
    a block: images, a salt) are equal too. ``parent``: None at the start of a prompt.
    """

    block_hashes: list[BlockHash]
    parent: BlockHash | None
    token_ids: list[int]
    block_size: int
    medium: str | None  # "GPU", "CPU", "STORAGE" and others; None where the engine has but one
    adapter: str | int | None
    salt: str | None
    extra_keys: list[Any] | None
    group: int | None  # of layers that are cached together, in models that have several kinds
    locality: str | None  # "LOCAL" or "REMOTE", seen from the publisher


@dataclass(frozen=True, slots=True)
class RemovedBlocks:
    """Blocks that a medium of a cache holds no more."""

    block_hashes: list[BlockHash]
    medium: str | None
    group: int | None
    locality: str | None


@dataclass(frozen=True, slots=True)
class ClearedBlocks:
    """A cache holds nothing any more."""


KvEvent = StoredBlocks | RemovedBlocks | ClearedBlocks


@dataclass(frozen=True, slots=True)
class KvBatch:
    """Events in their order; ``unknown``: how many more there were of kinds we do not know."""

    events: list[KvEvent]
    rank: int | None
    unknown: int


class _ArrayBatch(msgspec.Struct, array_like=True):
    ts: float
    events: list[msgspec.Raw]
    data_parallel_rank: int | None = None


class _MapBatch(msgspec.Struct):
    ts: float
    events: list[msgspec.Raw]
    data_parallel_rank: int | None = None


class _ArrayStored(msgspec.Struct, array_like=True, tag="BlockStored"):
    block_hashes: list[BlockHash]
    parent_block_hash: BlockHash | None
    token_ids: list[int]
    block_size: int
    lora_id: int | str | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[Any] | None = None
    group_idx: int | None = None


class _MapStored(msgspec.Struct, tag="BlockStored"):
    block_hashes: list[BlockHash]
    parent_block_hash: BlockHash | None
    token_ids: list[int]
    block_size: int
    lora_id: int | str | None = None
    medium: str | None = None
    lora_name: str | None = None
    cache_salt: str | None = None
    extra_keys: list[Any] | None = None
    group_idx: int | None = None
    locality: str | None = None


class _ArrayRemoved(msgspec.Struct, array_like=True, tag="BlockRemoved"):
    block_hashes: list[BlockHash]
    medium: str | None = None
    group_idx: int | None = None


class _MapRemoved(msgspec.Struct, tag="BlockRemoved"):
    block_hashes: list[BlockHash]
    medium: str | None = None
    group_idx: int | None = None
    locality: str | None = None


class _ArrayCleared(msgspec.Struct, array_like=True, tag="AllBlocksCleared"):
    pass


class _MapCleared(msgspec.Struct, tag="AllBlocksCleared"):
    pass


class _ArrayTag(msgspec.Struct, array_like=True):
    type: str


class _MapTag(msgspec.Struct):
    type: str


KNOWN = ("BlockStored", "BlockRemoved", "AllBlocksCleared")

_ARRAY_BATCH = msgspec.msgpack.Decoder(_ArrayBatch)
_MAP_BATCH = msgspec.msgpack.Decoder(_MapBatch)
_ARRAY_EVENT = msgspec.msgpack.Decoder(_ArrayStored | _ArrayRemoved | _ArrayCleared)
_MAP_EVENT = msgspec.msgpack.Decoder(_MapStored | _MapRemoved | _MapCleared)
_ARRAY_TAG = msgspec.msgpack.Decoder(_ArrayTag)
_MAP_TAG = msgspec.msgpack.Decoder(_MapTag)


def decode_batch(payload: bytes) -> KvBatch:
    """Decode one message's payload. Raises InputError where it is none, or an event is wrong."""
    try:
        batch = (_MAP_BATCH if _is_map(payload) else _ARRAY_BATCH).decode(payload)
        decoded = [_event(raw) for raw in batch.events]
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise InputError(f"KV events: {error}; expected a batch of vLLM or SGLang") from None
    events = [event for event in decoded if event is not None]
    return KvBatch(events, batch.data_parallel_rank, len(decoded) - len(events))


def _event(raw: msgspec.Raw) -> KvEvent | None:
    """The event; None where it is of a kind that we do not know."""
    decoder, tags = (_MAP_EVENT, _MAP_TAG) if _is_map(raw) else (_ARRAY_EVENT, _ARRAY_TAG)
    try:
        wire = decoder.decode(raw)
    except msgspec.ValidationError:
        if tags.decode(raw).type in KNOWN:
            raise
        return None
    if isinstance(wire, _ArrayStored | _MapStored):
        return _stored(wire)
    if isinstance(wire, _ArrayRemoved | _MapRemoved):
        locality = wire.locality if isinstance(wire, _MapRemoved) else None
        return RemovedBlocks(wire.block_hashes, wire.medium, wire.group_idx, locality)
    return ClearedBlocks()


def _stored(wire: _ArrayStored | _MapStored) -> StoredBlocks:
    if wire.block_size < 1:
        raise ValueError(f"block_size is {wire.block_size}")
    in_map = wire if isinstance(wire, _MapStored) else None
    return StoredBlocks(
        block_hashes=wire.block_hashes,
        parent=wire.parent_block_hash,
        token_ids=wire.token_ids,
        block_size=wire.block_size,
        medium=wire.medium,
        adapter=wire.lora_id if wire.lora_name is None else wire.lora_name,
        salt=None if in_map is None else in_map.cache_salt,
        extra_keys=wire.extra_keys,
        group=wire.group_idx,
        locality=None if in_map is None else in_map.locality,
    )


def _is_map(packed: bytes | msgspec.Raw) -> bool:
    """Whether a msgpack value is a map. Source: the msgpack specification, table of formats."""
    first = bytes(memoryview(packed)[:1])
    return bool(first) and (0x80 <= first[0] <= 0x8F or first[0] in (0xDE, 0xDF))
