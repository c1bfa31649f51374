"""The state of a fleet that batches: records of requests, engines and replicas, and their blocks.

    order[r, 0 .. replicas[r].running)     requests that run, in the order of admission
    replicas[r].first_waiting -> progress[i].following -> ... -> NONE     requests that wait
    held[r * seats + progress[i].seat, 0 .. progress[i].held_blocks)      its slots, in order

Slots, ``slots[r, slot]``: see ``kv_cache.py``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pointsman.dispatch.holders import Holders, empty_holders

ENGINE_MODEL = "vllm-v1"

NONE = -1
WAITING, RUNNING, FINISHED, REJECTED = range(4)

Records = NDArray[Any]
Grid = NDArray[np.int32]

QUESTION = np.dtype(  # what is asked; nothing here changes
    [
        ("arrival_ms", np.float64),
        ("chain_start", np.int64),  # into chain_blocks, in the cache's blocks
        ("known_blocks", np.int32),  # full blocks with an id: of the prompt, and of the answer
        ("prompt_blocks", np.int32),  # those of the prompt
        ("prompt_tokens", np.int32),
        ("output_tokens", np.int32),
        ("session", np.int32),
    ],
    align=True,
)

ENGINE = np.dtype(  # how a replica is set; costs in ms: docs/simulator.md
    [
        ("per_iteration_ms", np.float64),
        ("per_prefill_token_ms", np.float64),
        ("per_decode_ms", np.float64),
        ("per_kv_token_ms", np.float64),
        ("per_attention_ms", np.float64),
        ("max_num_seqs", np.int32),
        ("max_num_batched_tokens", np.int32),
        ("block_size", np.int32),  # the same on all
        ("reserve_full", np.int32),  # 1: admit only where all tokens fit
        ("see_late", np.int32),  # 1: an arrival during an iteration is seen one start later
    ],
    align=True,
)

PROGRESS = np.dtype(  # where a request stands; times are NaN until they come
    [
        ("scheduled_ms", np.float64),
        ("first_token_ms", np.float64),
        ("finish_ms", np.float64),
        ("work_ms", np.float64),  # what the router expects its prompt to take
        ("status", np.int32),
        ("computed", np.int32),
        ("generated", np.int32),
        ("chunk", np.int32),  # of the iteration that runs
        ("seat", np.int32),
        ("held_blocks", np.int32),
        ("following", np.int32),  # the next one that waits on the same replica
        ("following_pending", np.int32),  # the next one without a first token there
        ("preemptions", np.int32),
        ("cached_tokens", np.int32),
        ("own_slot", np.int32),  # after a preemption: the first slot beyond the chain's blocks
    ],
    align=True,
)

REPLICA = np.dtype(  # the stretch of iterations under way, the queue, the router's accounts
    [
        ("end_ms", np.float64),  # inf: idle
        ("start_ms", np.float64),
        ("base_ms", np.float64),  # the first iteration of the stretch
        ("growth_ms", np.float64),  # how much longer each further one takes
        ("length", np.int64),  # iterations; 0: idle
        ("events", np.int64),
        ("evictions", np.int64),
        ("pending_ms", np.float64),  # expected work of requests without a first token
        ("last_first_ms", np.float64),
        ("in_flight", np.float64),
        ("running", np.int32),
        ("first_waiting", np.int32),
        ("last_waiting", np.int32),
        ("first_pending", np.int32),
        ("last_pending", np.int32),
        ("capacity", np.int32),
        ("free", np.int32),
    ],
    align=True,
)

SLOT = np.dtype(
    [
        ("block", np.int32),  # the id of its content, or NONE
        ("references", np.int32),  # running requests that use it; 0: free
        ("newer", np.int32),
        ("older", np.int32),
        ("owner", np.int32),  # a preempted request whose content lies here, or NONE
        ("next_own", np.int32),  # the slot of its next block, or NONE
    ],
    align=True,
)


class Fleet(NamedTuple):
    """Everything that the loop works on."""

    questions: Records
    chain_blocks: NDArray[np.int32]
    engines: Records
    progress: Records
    replicas: Records
    order: Grid
    free_seats: Grid
    held: Grid
    slots: Records  # (replicas, capacity + 1), the last one a sentinel
    slot_of: Grid  # (replicas, block ids): the slot that holds a block, or NONE
    holders: Holders  # what the router knows of it


def idle_fleet(
    questions: Records, chain_blocks: NDArray[np.int32], engines: Records, capacities: Grid
) -> Fleet:
    """A fleet in which nothing runs and nothing is cached; ``capacities`` in blocks."""
    count, seats = engines.shape[0], int(engines["max_num_seqs"].max())
    size = int(engines["block_size"][0])
    ids = int(chain_blocks.max()) + 1 if chain_blocks.size else 1
    tokens = questions["prompt_tokens"].astype(np.int64) + questions["output_tokens"]
    most_held = min(int(tokens.max()) // size + 2, int(capacities.max())) if tokens.size else 1
    return Fleet(
        questions=questions,
        chain_blocks=chain_blocks,
        engines=engines,
        progress=_waiting_requests(questions.shape[0]),
        replicas=_idle_replicas(capacities),
        order=np.full((count, seats), NONE, dtype=np.int32),
        free_seats=np.tile(np.arange(seats, dtype=np.int32), (count, 1)),
        held=np.full((count * seats, most_held), NONE, dtype=np.int32),
        slots=_free_slots(capacities),
        slot_of=np.full((count, ids), NONE, dtype=np.int32),
        holders=empty_holders(ids, count),
    )


def _waiting_requests(count: int) -> Records:
    progress = np.zeros(count, dtype=PROGRESS)
    for name in ("scheduled_ms", "first_token_ms", "finish_ms"):
        progress[name] = np.nan
    for name in ("seat", "following", "following_pending", "own_slot"):
        progress[name] = NONE
    return progress


def _idle_replicas(capacities: Grid) -> Records:
    replicas = np.zeros(capacities.shape[0], dtype=REPLICA)
    replicas["end_ms"] = np.inf
    replicas["last_first_ms"] = -np.inf
    for name in ("first_waiting", "last_waiting", "first_pending", "last_pending"):
        replicas[name] = NONE
    replicas["capacity"] = replicas["free"] = capacities
    return replicas


def _free_slots(capacities: Grid) -> Records:
    slots = np.zeros((capacities.shape[0], int(capacities.max()) + 1), dtype=SLOT)
    for name in ("block", "owner", "next_own"):
        slots[name] = NONE
    for r, capacity in enumerate(capacities.tolist()):
        ring = np.arange(capacity + 1, dtype=np.int32)
        slots["newer"][r, : capacity + 1] = np.roll(ring, -1)
        slots["older"][r, : capacity + 1] = np.roll(ring, 1)
    return slots
