"""KV events in the layouts of vLLM and SGLang, packed here from plain lists and maps.

The layouts are those of vllm-project/vllm, vllm/distributed/kv_events.py (arrays until events
became maps: 0.32) and sgl-project/sglang, python/sglang/srt/disaggregation/kv_events.py (arrays:
@006d053, maps: 0.5.23).
"""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.errors import InputError
from pointsman.router.engine.kv_messages import (
    ClearedBlocks,
    RemovedBlocks,
    StoredBlocks,
    decode_batch,
)

pack = msgspec.msgpack.encode


def decoded(*events):
    return decode_batch(pack([1762031045.5, list(events)])).events


NAMES = ("parent", "medium", "adapter", "salt", "extra_keys", "group", "locality")


def plain(**fields) -> StoredBlocks:
    empty = dict.fromkeys(NAMES)
    return StoredBlocks(**{**empty, **fields})


def test_arrays_of_sglang_are_read():
    events = decoded(
        ["BlockStored", [11, 12], 10, [1, 2, 3, 4], 2, None],
        ["BlockRemoved", [11]],
        ["AllBlocksCleared"],
    )
    assert events == [
        plain(block_hashes=[11, 12], parent=10, token_ids=[1, 2, 3, 4], block_size=2),
        RemovedBlocks([11], None, None, None),
        ClearedBlocks(),
    ]


def test_arrays_of_vllm_with_medium_and_adapter_are_read():
    [stored, removed] = decoded(
        ["BlockStored", [2**64 - 1], None, [7] * 16, 16, 3, "GPU", "sql-adapter"],
        ["BlockRemoved", [2**64 - 1], "GPU"],
    )
    assert stored == plain(
        block_hashes=[2**64 - 1],
        token_ids=[7] * 16,
        block_size=16,
        medium="GPU",
        adapter="sql-adapter",
    )
    assert removed == RemovedBlocks([2**64 - 1], "GPU", None, None)


def test_an_adapter_without_a_name_is_known_by_its_number():
    [stored] = decoded(["BlockStored", [1], None, [7], 1, 3])
    assert stored.adapter == 3


def test_maps_of_newer_vllm_are_read_within_an_array_and_within_a_map():
    events = [
        {
            "type": "BlockStored",
            "block_hashes": [b"\x00\xff"],
            "parent_block_hash": b"\x01",
            "token_ids": [5, 6],
            "block_size": 2,
            "lora_id": None,
            "medium": "GPU",
            "lora_name": None,
            "extra_keys": [["salt"]],
            "group_idx": 1,
            "kv_cache_spec_kind": "full_attention",
            "locality": "LOCAL",
        },
        {
            "type": "BlockRemoved",
            "block_hashes": [b"\x00\xff"],
            "medium": "CPU",
            "group_idx": 1,
            "locality": "REMOTE",
        },
        {"type": "AllBlocksCleared"},
    ]
    for batch in ([1.5, events, 3], {"ts": 1.5, "events": events, "data_parallel_rank": 3}):
        read = decode_batch(pack(batch))
        assert read.rank == 3
        assert read.events == [
            plain(
                block_hashes=[b"\x00\xff"],
                parent=b"\x01",
                token_ids=[5, 6],
                block_size=2,
                medium="GPU",
                extra_keys=[["salt"]],
                group=1,
                locality="LOCAL",
            ),
            RemovedBlocks([b"\x00\xff"], "CPU", 1, "REMOTE"),
            ClearedBlocks(),
        ]


def test_maps_of_newer_sglang_are_read_with_their_salt_and_their_rank():
    event = {
        "type": "BlockStored",
        "block_hashes": [-5],
        "parent_block_hash": None,
        "token_ids": [5, 6],
        "block_size": 2,
        "lora_id": None,
        "medium": "CPU_PINNED",
        "cache_salt": "tenant",
        "session_id": "s",
        "lora_name": "sql",
    }
    read = decode_batch(pack([1.5, [event], 1]))
    assert read.rank == 1
    assert read.events == [
        plain(
            block_hashes=[-5],
            token_ids=[5, 6],
            block_size=2,
            medium="CPU_PINNED",
            adapter="sql",
            salt="tenant",
        )
    ]


def test_fields_that_come_after_those_we_know_are_passed_over():
    [stored] = decoded(
        ["BlockStored", [1], None, [7], 1, None, "GPU", None, None, 0, "full_attention", 4096, "x"]
    )
    assert (stored.block_hashes, stored.group) == ([1], 0)


def test_more_than_sixteen_fields_of_a_map_make_it_another_kind_of_map():
    event = {f"new_{number}": number for number in range(20)}
    [removed] = decoded({"type": "BlockRemoved", "block_hashes": [1], **event})
    assert removed == RemovedBlocks([1], None, None, None)


def test_events_of_an_unknown_kind_are_counted_and_the_others_read():
    batch = decode_batch(
        pack([1.0, [["BlockPinned", [1]], {"type": "New"}, ["BlockRemoved", [2]]]])
    )
    assert batch.unknown == 2
    assert batch.events == [RemovedBlocks([2], None, None, None)]


def test_an_empty_batch_has_no_events():
    assert decode_batch(pack([1.0, []])).events == []


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        pack(7),
        pack([1.0]),
        pack([1.0, [["BlockStored", [1]]]]),
        pack([1.0, [["BlockStored", [1], None, [7], 0]]]),
        pack([1.0, [["BlockRemoved", "all"]]]),
        pack([1.0, [{"type": "BlockRemoved"}]]),
        pack([1.0, [[]]]),
        pack([1.0, ["BlockRemoved"]]),
        pack([1.0, [["BlockRemoved", [1]]]])[:-1],
        pack({"ts": 1.0}),
    ],
)
def test_what_is_no_batch_is_refused(payload):
    with pytest.raises(InputError, match=r"KV events: .*; expected a batch of vLLM or SGLang"):
        decode_batch(payload)


@given(st.binary(max_size=60))
def test_bytes_from_anywhere_are_read_or_refused(payload):
    with contextlib.suppress(InputError):
        decode_batch(payload)
