"""Engine cores that step together behind vLLM's own front (docs/calibration.md).

Where a mixture-of-experts model is served with data parallelism, every iteration exchanges tokens
between the cores: they start together and end with the slowest one; a core without requests runs a
dummy batch (``DPEngineCoreProc.run_busy_loop`` in ``vllm/v1/engine/core.py``).

    front's score of a core    4 * (waiting as reported + sent since) + running as reported
    a report                   every 100 ms, of the last iteration that has started

from ``DPLBAsyncMPClient`` in ``vllm/v1/engine/core_client.py`` and ``vllm/v1/engine/coordinator.py``
of vLLM 0.19; of equal scores the first core is taken.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import typeof, types

from pointsman.core.compiled import Kernel, helper, inlined
from pointsman.sim.batching_engine import (
    cut_stretch,
    finish_stretch,
    join_queue,
    start_iteration,
    stretch_ms,
)
from pointsman.sim.batching_state import ENGINE, NONE, QUESTION, Fleet, Records, idle_fleet
from pointsman.workload.workload import Ints, Longs

_REPORT_MS = 100.0
_WAITING_WEIGHT = 4

# Rows of the front's accounts, a column a core.
_WAITING, _RUNNING, _SENT, _NOW_WAITING, _NOW_RUNNING = range(5)


@helper
def _report(accounts: Longs, reports: Longs, now_ms: float) -> None:
    """The front gets what the cores had counted, if a report was due since the last one."""
    due = np.int64(now_ms // _REPORT_MS)
    if due > reports[0]:
        reports[0] = due
        for k in range(accounts.shape[1]):
            accounts[_WAITING, k] = accounts[_NOW_WAITING, k]
            accounts[_RUNNING, k] = accounts[_NOW_RUNNING, k]
            accounts[_SENT, k] = 0


@inlined
def _best_core(accounts: Longs) -> int:
    best, least = 0, np.int64(1) << 40
    for k in range(accounts.shape[1]):
        waiting = accounts[_WAITING, k] + accounts[_SENT, k]
        score = _WAITING_WEIGHT * waiting + accounts[_RUNNING, k]
        if score < least:
            best, least = k, score
    return best


@helper
def _count(fleet: Fleet, k: int, before_ms: float, accounts: Longs) -> None:
    """What the core counts at the start of an iteration. With asynchronous scheduling those that
    came during the last one are scheduled by now, and run from the next one on."""
    replica = fleet.replicas[k]
    running, first = np.int64(replica.running), replica.first_waiting
    waiting = np.int64(replica.in_flight) - running
    if first != NONE and fleet.questions[first].arrival_ms > before_ms:
        running, waiting = running + waiting, 0
    accounts[_NOW_WAITING, k] = waiting
    accounts[_NOW_RUNNING, k] = running


@helper
def _start_together(fleet: Fleet, now_ms: float, accounts: Longs) -> float:
    """Start an iteration on all cores; returns when it ends, inf where none has requests."""
    lead, length = NONE, np.int64(1) << 40
    for k in range(fleet.replicas.shape[0]):
        before_ms = fleet.replicas[k].start_ms
        start_iteration(fleet, k, now_ms)
        _count(fleet, k, before_ms, accounts)
        replica = fleet.replicas[k]
        if replica.length > 0:
            length = min(length, replica.length)
            if lead == NONE or replica.base_ms > fleet.replicas[lead].base_ms:
                lead = k
    if lead == NONE:
        return np.inf
    base_ms, growth_ms = fleet.replicas[lead].base_ms, fleet.replicas[lead].growth_ms
    for k in range(fleet.replicas.shape[0]):
        replica = fleet.replicas[k]
        if replica.length > 0 and replica.growth_ms > growth_ms:  # it will be the slowest one
            ahead = (base_ms - replica.base_ms) / (replica.growth_ms - growth_ms)
            length = min(length, np.int64(ahead) + 1)
    end_ms = now_ms + stretch_ms(base_ms, growth_ms, length)
    for k in range(fleet.replicas.shape[0]):
        replica = fleet.replicas[k]
        if replica.length > 0:
            replica.base_ms, replica.growth_ms = base_ms, growth_ms
            replica.length, replica.end_ms = length, end_ms
    return end_ms


@helper
def _cut_together(fleet: Fleet, now_ms: float, end_ms: float) -> float:
    for k in range(fleet.replicas.shape[0]):
        if fleet.replicas[k].length > 0:
            cut_stretch(fleet, k, now_ms)
            end_ms = fleet.replicas[k].end_ms
    return end_ms


def _run(fleet: Fleet, accounts: Longs, reports: Longs, core_of: Ints) -> None:
    arrivals = fleet.questions.shape[0]
    end_ms = np.inf
    i = 0
    while True:
        now_ms = fleet.questions[i].arrival_ms if i < arrivals else np.inf
        if end_ms <= now_ms:
            if end_ms == np.inf:
                return
            _report(accounts, reports, end_ms)
            for k in range(fleet.replicas.shape[0]):
                if fleet.replicas[k].length > 0:
                    finish_stretch(fleet, k)
            end_ms = _start_together(fleet, end_ms, accounts)
            continue
        _report(accounts, reports, now_ms)
        k = _best_core(accounts)
        accounts[_SENT, k] += 1
        core_of[i] = k
        fleet.replicas[k].in_flight += 1.0
        join_queue(fleet, k, i)
        if end_ms == np.inf:
            end_ms = _start_together(fleet, now_ms, accounts)
        else:
            end_ms = _cut_together(fleet, now_ms, end_ms)
        i += 1


@cache
def _loop() -> Kernel:
    one = np.ones(1, dtype=np.int32)
    fleet = typeof(idle_fleet(np.ones(1, dtype=QUESTION), one, np.ones(1, dtype=ENGINE), one))
    longs = types.int64[:, ::1], types.int64[::1]
    return Kernel(_run, types.void(fleet, *longs, types.int32[::1]))


def run_in_lockstep(fleet: Fleet) -> Ints:
    """Run the fleet's requests to their end on its replicas as cores; returns the core of each."""
    core_of = np.full(fleet.questions.shape[0], NONE, dtype=np.int32)
    accounts = np.zeros((5, fleet.replicas.shape[0]), dtype=np.int64)
    _loop()(fleet, accounts, np.full(1, NONE, dtype=np.int64), core_of)
    return core_of
