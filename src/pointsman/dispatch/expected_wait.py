"""The wait on one replica as those that are held for it look at it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from pointsman.core.compiled import kernel
from pointsman.core.handles import HANDLE_TYPE
from pointsman.dispatch.live_kernels import (
    iteration_takes_ms,
    live_at,
    prefill_ms,
    seat_wait_ms,
    steps_since_mark,
)
from pointsman.policies.in_flight import NONE

_WAIT = types.UniTuple(types.float64, 2)


@kernel(_WAIT(HANDLE_TYPE, types.int64, types.int64, types.float64, types.float64))
def expected_wait(
    handle: Any, r: int, prompt_tokens: int, now_ms: float, limit_ms: float
) -> tuple[float, float]:
    """The wait there, those held for it not counted, and when it will have fallen to the limit by
    itself; inf: not without a first token, an end or a reading.

    The instant is in no log: first tokens that are due count as if they had come, and the accounts
    stay as they are.
    """
    live = live_at(handle)
    account, flights, costs = live.in_flight.accounts[r], live.in_flight.flights, live.replicas[r]
    oldest, pending_ms, decoding = int(account.oldest), account.pending_ms, account.decoding
    last_ms, mark_ms = account.last_first_ms, costs.mark_ms
    while oldest != NONE and live.slots[oldest].assumed_first_ms <= now_ms:
        last_ms = mark_ms = max(live.slots[oldest].assumed_first_ms, mark_ms)
        pending_ms -= flights[oldest].work_ms
        decoding += 1.0
        oldest = int(flights[oldest].newer)
    prompt = float(prompt_tokens)
    foreign_ms = costs.foreign_waiting * prefill_ms(live, r, prompt, prompt)
    iteration_ms = iteration_takes_ms(live, r, float(steps_since_mark(live, r, now_ms)))
    seat_ms = seat_wait_ms(live, r, 0.0, decoding, iteration_ms)
    if oldest == NONE:
        return max(foreign_ms, seat_ms), np.inf
    begun_ms, work_ms = max(last_ms, flights[oldest].sent_ms), flights[oldest].work_ms
    ahead_ms = max(0.0, pending_ms - min(now_ms - begun_ms, work_ms)) + foreign_ms
    excess_ms, falls_ms = pending_ms + foreign_ms - limit_ms, live.slots[oldest].assumed_first_ms
    if ahead_ms > limit_ms and excess_ms <= work_ms:
        falls_ms = min(falls_ms, begun_ms + excess_ms)
    return max(ahead_ms, seat_ms), falls_ms
