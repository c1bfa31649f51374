"""The state of a fleet that batches: records of requests, engines and replicas, and their blocks.

    order[r, 0 .. replicas[r].running)     requests that run, in the order of admission
    replicas[r].first_waiting -> progress[i].following -> ... -> NONE     requests that wait
    held[r * seats + progress[i].seat, 0 .. progress[i].held_blocks)      its slots, in order

Slots, ``slots[r, slot]``: see ``kv_cache.py``. Where prefill and decode are apart, request i has
two rows: i is its prefill, ``questions[i].decode_row`` its decode.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pointsman.metrics.intertoken import GAP_BINS
from pointsman.policies.in_flight import FLIGHT, InFlight, idle_in_flight
from pointsman.sim.knowledge import Knowledge, Signals, blank_knowledge

ENGINE_MODEL = "vllm-v1"

NONE = -1
EVICTED = -2
SAMPLES = 512
UNSENT, WAITING, RUNNING, FINISHED, REJECTED, FAILED, RECEIVING, HANDED_OVER = range(8)

# Why a request is rejected or failed.
NO_CAUSE, CAN_NEVER_FIT, DIED_MID_STREAM, NO_REPLICA, TRIES_USED = range(5)

Records = NDArray[Any]
Grid = NDArray[np.int32]

QUESTION = np.dtype(  # what is asked; of it only arrivals of a closed loop are set as they come
    [
        ("arrival_ms", np.float64),
        ("chain_start", np.int64),  # into chain_blocks, in the cache's blocks
        ("known_blocks", np.int32),  # full blocks with an id: of the prompt, and of the answer
        ("prompt_blocks", np.int32),  # those of the prompt
        ("prompt_tokens", np.int32),
        ("output_tokens", np.int32),
        ("session", np.int32),
        ("priority", np.int32),  # the lowest first, where the engine goes by it
        ("router", np.int32),  # the one that it comes to
        ("decode_row", np.int32),  # of a prefill by itself: the row of its decode, else NONE
        ("remote", np.int32),  # 1: a decode whose prompt is computed elsewhere
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
        ("max_model_len", np.int32),  # prompt and output together
        ("reserve_full", np.int32),  # 1: admit only where all tokens fit
        ("see_late", np.int32),  # 1: an arrival during an iteration is seen one start later
        ("by_priority", np.int32),  # 1: the lowest priority first, not first come first served
        ("shares_late", np.int32),  # 1: others find what a request computed once it has ended
    ],
    align=True,
)

PROGRESS = np.dtype(  # where a request stands on its engine; times are NaN until they come
    [
        ("scheduled_ms", np.float64),
        ("finish_ms", np.float64),
        ("last_token_ms", np.float64),
        ("handoff_ms", np.float64),  # base and transfer
        ("received_ms", np.float64),  # when its KV had come
        ("transfer_mark", np.float64),  # the link's progress at which its transfer ends, in bytes
        ("status", np.int32),
        ("cause", np.int32),
        ("replica", np.int32),  # where it was sent last
        ("tries", np.int32),
        ("computed", np.int32),
        ("chunk", np.int32),  # of the iteration that runs
        ("seat", np.int32),
        ("held_blocks", np.int32),
        ("following", np.int32),  # the next one that waits on the same replica
        ("preemptions", np.int32),
        ("cached_tokens", np.int32),
        ("moved_tokens", np.int32),  # whose KV was handed over
        ("own_slot", np.int32),  # after a preemption: the first slot beyond the chain's blocks
        ("recomputed_tokens", np.int32),  # of its prompt; they were cached there and are no more
    ],
    align=True,
)

REPLICA = np.dtype(  # the stretch of iterations under way, the queue, what was done
    [
        ("end_ms", np.float64),  # inf: idle
        ("start_ms", np.float64),
        ("base_ms", np.float64),  # the first iteration of the stretch
        ("growth_ms", np.float64),  # how much longer each further one takes
        ("length", np.int64),  # iterations; 0: idle
        ("events", np.int64),
        ("evictions", np.int64),
        ("iterations", np.int64),
        ("prefill_tokens", np.int64),
        ("decode_tokens", np.int64),
        ("busy_ms", np.float64),
        ("kv_block_ms", np.float64),  # used blocks, summed over the busy time
        ("gap_total_ms", np.float64),  # gaps between tokens, added up
        ("decodes", np.int64),  # in the iterations under way
        ("used_at_start", np.int64),  # blocks, when they began
        ("running", np.int32),
        ("waiting", np.int32),
        ("receiving", np.int32),  # they have a seat and blocks; their KV is under way
        ("seats_free", np.int32),
        ("first_waiting", np.int32),
        ("last_waiting", np.int32),
        ("capacity", np.int32),
        ("free", np.int32),
        ("least_free", np.int32),
        ("alive", np.int32),
        ("slowness", np.float64),  # its costs are this many times the nominal ones
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

LINK = np.dtype(  # between prefill and decode
    [
        ("bytes_per_ms", np.float64),
        ("base_ms", np.float64),  # from the end of a prefill until its decode can begin to fetch
        ("bytes_per_token", np.float64),
        ("shares", np.int32),  # 1: transfers at the same time share the link
        ("moves_all", np.int32),  # 1: blocks that the decode replica holds are moved as well
        ("active", np.int32),
        ("next_row", np.int64),
        ("mark", np.float64),  # bytes that a transfer under way since the start would have moved
        ("updated_ms", np.float64),
        ("next_ms", np.float64),  # the next end of a transfer; inf: none is under way
        ("moved_bytes", np.float64),
        ("first_sent", np.int64),
        ("sent", np.int64),
    ],
    align=True,
)

STEP = np.dtype([("step_ms", np.float64), ("taken", np.int64)], align=True)

SENT = np.dtype([("due_ms", np.float64), ("row", np.int64)], align=True)


class Fleet(NamedTuple):
    """Everything that the engines work on, and what the router in front of them knows."""

    questions: Records
    chain_blocks: NDArray[np.int32]
    engines: Records
    progress: Records
    flights: Records  # FLIGHT, a row a request: what the router knows of each
    replicas: Records
    order: Grid
    free_seats: Grid
    held: Grid
    slots: Records  # (replicas, capacity + 1), the last one a sentinel
    slot_of: Grid  # (replicas, block ids): the slot that holds a block, or EVICTED, or NONE
    link: Records  # one record
    transfers: NDArray[np.int32]  # rows whose KV is under way
    sent: Records  # a ring of requests on their way from prefill to decode
    gaps: NDArray[np.int64]  # (replicas, GAP_BINS): gaps between tokens
    samples: NDArray[np.float32]  # (replicas, samples, 3): see timeline.py
    steps: Records
    knowledge: Knowledge
    in_flight: InFlight


def idle_fleet(  # noqa: PLR0913 - the parts of a fleet that differ from run to run
    questions: Records,
    chain_blocks: NDArray[np.int32],
    engines: Records,
    capacities: Grid,
    signals: Signals,
    candidates: int | None = None,
) -> Fleet:
    """A fleet in which nothing runs and nothing is cached; ``capacities`` in blocks.

    So many ``candidates``, by default as many as replicas.
    """
    count = engines.shape[0]
    # A prefill by itself keeps its seat and blocks until they are fetched.
    seats = int(engines["max_num_seqs"].max()) * (2 if (questions["decode_row"] >= 0).any() else 1)
    size = int(engines["block_size"][0])
    ids = int(chain_blocks.max()) + 1 if chain_blocks.size else 1
    tokens = questions["prompt_tokens"].astype(np.int64) + questions["output_tokens"]
    most_held = min(int(tokens.max()) // size + 2, int(capacities.max())) if tokens.size else 1
    order = np.full((count, seats), NONE, dtype=np.int32)
    flights = np.zeros(questions.shape[0], dtype=FLIGHT)
    flights["first_token_ms"] = np.nan
    return Fleet(
        questions=questions,
        chain_blocks=chain_blocks,
        engines=engines,
        progress=_waiting_requests(questions.shape[0]),
        flights=flights,
        replicas=_idle_replicas(capacities, seats),
        order=order,
        free_seats=np.tile(np.arange(seats, dtype=np.int32), (count, 1)),
        held=np.full((count * seats, most_held), NONE, dtype=np.int32),
        slots=free_slots(capacities),
        slot_of=np.full((count, ids), NONE, dtype=np.int32),
        link=_quiet_link(),
        transfers=np.full(count * seats, NONE, dtype=np.int32),
        sent=np.zeros(max(1, questions.shape[0]), dtype=SENT),
        gaps=np.zeros((count, GAP_BINS), dtype=np.int64),
        samples=np.zeros((count, SAMPLES, 3), dtype=np.float32),
        steps=_first_steps(questions, count),
        knowledge=blank_knowledge(ids, count, signals),
        in_flight=idle_in_flight(flights, order, candidates),
    )


def smallest_fleet() -> Fleet:
    """One replica and one request: what the types of compiled code are read from."""
    one = np.ones(1, dtype=np.int32)
    return idle_fleet(np.ones(1, dtype=QUESTION), one, np.ones(1, dtype=ENGINE), one, Signals())


def _waiting_requests(count: int) -> Records:
    progress = np.zeros(count, dtype=PROGRESS)
    for name in ("scheduled_ms", "finish_ms", "last_token_ms", "received_ms"):
        progress[name] = np.nan
    for name in ("seat", "following", "own_slot", "replica"):
        progress[name] = NONE
    return progress


def _idle_replicas(capacities: Grid, seats: int) -> Records:
    replicas = np.zeros(capacities.shape[0], dtype=REPLICA)
    replicas["end_ms"] = np.inf
    for name in ("first_waiting", "last_waiting"):
        replicas[name] = NONE
    replicas["capacity"] = replicas["free"] = replicas["least_free"] = capacities
    replicas["seats_free"] = seats
    replicas["alive"] = 1
    replicas["slowness"] = 1.0
    return replicas


def _first_steps(questions: Records, count: int) -> Records:
    """Steps of a second or more, with which the arrivals fill half of the samples."""
    span_ms = float(questions["arrival_ms"].max(initial=0.0))
    steps = np.zeros(count, dtype=STEP)
    steps["step_ms"] = 1000.0 * max(1, math.ceil(span_ms / 1000.0 / (SAMPLES // 2)))
    return steps


def _quiet_link() -> Records:
    link = np.zeros(1, dtype=LINK)
    link["bytes_per_ms"] = link["next_ms"] = np.inf
    link["next_row"] = NONE
    return link


def free_slots(capacities: Grid) -> Records:
    """Slots without content, in the order in which they are taken."""
    slots = np.zeros((capacities.shape[0], int(capacities.max()) + 1), dtype=SLOT)
    for name in ("block", "owner", "next_own"):
        slots[name] = NONE
    for r, capacity in enumerate(capacities.tolist()):
        ring = np.arange(capacity + 1, dtype=np.int32)
        slots["newer"][r, : capacity + 1] = np.roll(ring, -1)
        slots["older"][r, : capacity + 1] = np.roll(ring, 1)
    return slots
