"""The hand-off from prefill to decode: a base time, then the KV over one link.

    prefill ends -> base -> waits for a seat and blocks there -> transfer -> the next iteration

As vLLM's pull connectors do it: the decode replica admits the request, reserves blocks and fetches
what its own cache lacks; the prefill replica keeps its blocks until then. Transfers at the same
time share the link evenly: k of them take k times as long.
"""

from __future__ import annotations

import numpy as np

from pointsman.core.compiled import inner, inner_inlined
from pointsman.sim.batching_state import NONE, Fleet


@inner_inlined
def send_to_decode(fleet: Fleet, i: int, now_ms: float) -> None:
    """The prefill of row i has ended: its decode replica hears of it after the base time."""
    link, ring = fleet.link[0], fleet.sent
    place = ring[(link.first_sent + link.sent) % ring.shape[0]]
    place.due_ms = now_ms + link.base_ms
    place.row = fleet.questions[i].decode_row
    link.sent += 1


@inner_inlined
def next_sent_ms(fleet: Fleet) -> float:
    """When the next request comes to its decode replica; inf for none."""
    link = fleet.link[0]
    return fleet.sent[link.first_sent].due_ms if link.sent > 0 else np.inf


@inner_inlined
def take_sent(fleet: Fleet) -> int:
    """The row of that request, which is on its way no more."""
    link = fleet.link[0]
    row = fleet.sent[link.first_sent].row
    link.first_sent = (link.first_sent + 1) % fleet.sent.shape[0]
    link.sent -= 1
    return row  # type: ignore[no-any-return]


@inner_inlined
def transfer_tokens(fleet: Fleet, i: int, held_blocks: int, block_size: int) -> int:
    """What is moved of a prompt of which the destination holds so many leading blocks."""
    held = 0 if fleet.link[0].moves_all == 1 else held_blocks * block_size
    return max(0, fleet.questions[i].prompt_tokens - held)  # type: ignore[no-any-return]


@inner_inlined
def _advance_link(fleet: Fleet, now_ms: float) -> None:
    link = fleet.link[0]
    if link.active > 0:
        share = link.active if link.shares == 1 else 1
        link.mark += (now_ms - link.updated_ms) * link.bytes_per_ms / share
    link.updated_ms = now_ms


@inner_inlined
def _find_next(fleet: Fleet) -> None:
    """Who is done first; among equals whoever began first."""
    link = fleet.link[0]
    link.next_row = NONE
    link.next_ms = np.inf
    least = np.inf
    for k in range(link.active):
        mark = fleet.progress[fleet.transfers[k]].transfer_mark
        if mark < least:
            least = mark
            link.next_row = fleet.transfers[k]
    if link.active > 0:
        share = link.active if link.shares == 1 else 1
        left = max(0.0, least - link.mark)
        link.next_ms = link.updated_ms + left * share / link.bytes_per_ms


@inner
def begin_transfer(fleet: Fleet, i: int, held_blocks: int, now_ms: float) -> None:
    """The KV of row i is fetched from now on, but for the leading blocks that are there."""
    link, request = fleet.link[0], fleet.progress[i]
    size = fleet.engines[0].block_size
    request.moved_tokens = transfer_tokens(fleet, i, held_blocks, size)
    moved = request.moved_tokens * link.bytes_per_token
    _advance_link(fleet, now_ms)
    request.handoff_ms = now_ms - link.base_ms  # until it ends: when it would have begun
    request.transfer_mark = link.mark + moved
    fleet.transfers[link.active] = i
    link.active += 1
    link.moved_bytes += moved
    _find_next(fleet)


@inner
def end_transfer(fleet: Fleet, i: int, now_ms: float) -> None:
    """The transfer of row i is over, or given up."""
    link, request = fleet.link[0], fleet.progress[i]
    _advance_link(fleet, now_ms)
    if link.next_row == i and link.next_ms <= now_ms:
        link.mark = request.transfer_mark  # no crumbs
    request.handoff_ms = now_ms - request.handoff_ms
    kept = 0
    for k in range(link.active):
        if fleet.transfers[k] != i:
            fleet.transfers[kept] = fleet.transfers[k]
            kept += 1
    link.active = kept
    _find_next(fleet)


@inner_inlined
def expected_transfer_ms(fleet: Fleet, moved_tokens: int, under_way: int) -> float:
    """What a router expects a transfer to take that begins now, beside so many others."""
    link = fleet.link[0]
    share = under_way + 1 if link.shares == 1 else 1
    return link.base_ms + moved_tokens * link.bytes_per_token * share / link.bytes_per_ms  # type: ignore[no-any-return]
