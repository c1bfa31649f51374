"""What a live router keeps of its replicas: records that compiled functions read and write.

in_flight     the requests, as in the simulator (policies/in_flight.py)
replicas      REPLICA, one a replica: costs, limits, what was learned, what its engine said
slots         SLOT, one a row of in_flight.flights
awaited       AWAITED, one a replica: what the requests bring that the router holds for it
pairs         PAIR, one a candidate, where prefill and decode are apart; else none
link          LINK, one: what hand-offs take
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pointsman.policies.in_flight import FLIGHT, InFlight, idle_in_flight

REPLICA = np.dtype(
    [
        # What its iterations are expected to take, nominally (costs/iteration.py).
        ("per_iteration_ms", np.float64),
        ("per_prefill_token_ms", np.float64),
        ("per_decode_ms", np.float64),
        ("per_kv_token_ms", np.float64),
        ("per_attention_ms", np.float64),
        ("max_num_seqs", np.int64),  # 0: not known
        ("kv_tokens", np.int64),  # 0: not known
        # Learned: what they really take, as multiples.
        ("prefill_factor", np.float64),
        ("decode_factor", np.float64),
        # What its engine said last; NaN where it did not.
        ("waiting", np.float64),
        ("running", np.float64),
        ("kv_use", np.float64),
        # Requests there, by that reading, that this router had not sent.
        ("foreign_waiting", np.float64),
        ("foreign_running", np.float64),
        ("mark_ms", np.float64),  # until when the tokens of those that decode are counted
    ],
    align=True,
)

SLOT = np.dtype(
    [
        ("replica", np.int32),
        ("prompt_tokens", np.int32),
        ("nominal_ms", np.float64),  # its prefill, but for what was learned
        ("place", np.int32),  # in running[replica]; -1 until its first token
        # When its first token is taken to come; inf where it will be seen.
        ("assumed_first_ms", np.float64),
    ],
    align=True,
)

AWAITED = np.dtype(
    [
        ("requests", np.float64),
        ("work_ms", np.float64),  # of their prefills there
        ("uncached_tokens", np.float64),
        ("prompt_tokens", np.float64),
        ("is_tried", np.int64),  # 1 while one of them is: then they do not count
    ],
    align=True,
)

PAIR = np.dtype(
    [
        ("prefill", np.int32),
        ("decode", np.int32),  # NONE: that replica does both
        ("factor", np.float64),  # learned: what its hand-offs take, as a multiple
    ],
    align=True,
)

LINK = np.dtype(
    [
        # Sums over the hand-offs so far, the last one of weight 1: of tokens moved and of ms.
        ("weight", np.float64),
        ("tokens", np.float64),
        ("ms", np.float64),
        ("tokens_tokens", np.float64),
        ("tokens_ms", np.float64),
        # The line through them.
        ("base_ms", np.float64),
        ("per_token_ms", np.float64),
        ("moves_all", np.int64),  # 1: what the destination holds is moved too
    ],
    align=True,
)


class Live(NamedTuple):
    """All of it."""

    in_flight: InFlight
    replicas: NDArray[Any]
    slots: NDArray[Any]
    cached: NDArray[np.float64]  # by replica: tokens of the prompt being routed
    awaited: NDArray[Any]
    pairs: NDArray[Any]
    link: NDArray[Any]


def idle_live(replicas: int, slots: int, pairs: int = 0) -> Live:
    """Nothing in flight; costs of 0, nothing known."""
    known = idle_in_flight(
        np.zeros(slots, dtype=FLIGHT),
        np.zeros((replicas, slots), dtype=np.int32),
        max(replicas, pairs),
    )
    records = np.zeros(replicas, dtype=REPLICA)
    records["prefill_factor"] = records["decode_factor"] = 1.0
    for name in ("waiting", "running", "kv_use"):
        records[name] = np.nan
    cached = np.zeros(replicas, dtype=np.float64)
    awaited = np.zeros(replicas, dtype=AWAITED)
    pair_records, link = np.zeros(pairs, dtype=PAIR), np.zeros(1, dtype=LINK)
    pair_records["factor"] = 1.0
    slot_records = np.zeros(slots, dtype=SLOT)
    return Live(known, records, slot_records, cached, awaited, pair_records, link)


def grown(live: Live, slots: int) -> Live:
    """The same with room for more requests."""
    known = live.in_flight
    more = slots - live.slots.shape[0]
    flights = np.concatenate([known.flights, np.zeros(more, dtype=FLIGHT)])
    running = np.zeros((known.running.shape[0], slots), dtype=np.int32)
    running[:, : known.running.shape[1]] = known.running
    return live._replace(
        in_flight=known._replace(flights=flights, running=running),
        slots=np.concatenate([live.slots, np.zeros(more, dtype=SLOT)]),
    )
