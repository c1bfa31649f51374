"""Engine cores that step together, behind vLLM's own front (docs/calibration.md).

Where a mixture of experts is served with data parallelism, the cores exchange tokens in every
iteration: they start together and end with the slowest one, and one without requests runs along
(``DPEngineCoreProc.run_busy_loop`` in ``vllm/v1/engine/core.py``).

The front sends a request to the core with the lowest score, the first one of equals:

    4 * (waiting as reported + sent since the report) + running as reported

(``DPLBAsyncMPClient`` in ``vllm/v1/engine/core_client.py``). A report comes every 100 ms, with what
was counted before the last iteration that ended (``vllm/v1/engine/coordinator.py``): the counts of
an iteration are complete when the next ones come in. Facts of vLLM 0.19.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import typeof, types

from pointsman.core.compiled import Kernel, inner, inner_inlined
from pointsman.dispatch.accounts import count_sent
from pointsman.sim.batching_engine import start_iteration
from pointsman.sim.batching_state import NONE, Fleet, smallest_fleet
from pointsman.sim.stretch import cut_stretch, finish_stretch, stretch_ms
from pointsman.sim.waiting import join_queue
from pointsman.workload.workload import Floats, Ints, Longs

_REPORT_MS = 100.0
_WAITING_WEIGHT = 4

# Rows of the front's accounts, a column a core: what it was told, what it sent since; who came to
# the core during the last iteration; what the core counted last, and before that.
_WAITING, _RUNNING, _SENT, _CAME = range(4)
_LAST_WAITING, _LAST_RUNNING, _BEFORE_WAITING, _BEFORE_RUNNING = range(4, 8)
_ROWS = 8
# The clock of the reports: when the last one came, and how many iterations ended since.
_REPORTED_MS, _ENDED = range(2)


@inner
def _report(accounts: Longs, clock: Floats, now_ms: float) -> None:
    """Tell the front what the cores counted, if that is due."""
    due = np.int64((now_ms - clock[_REPORTED_MS]) // _REPORT_MS)
    if due > 0:
        before = _BEFORE_WAITING - _LAST_WAITING if due == 1 and clock[_ENDED] > 0.0 else 0
        clock[_REPORTED_MS] += due * _REPORT_MS
        clock[_ENDED] = 0.0
        for k in range(accounts.shape[1]):
            accounts[_WAITING, k] = accounts[_LAST_WAITING + before, k]
            accounts[_RUNNING, k] = accounts[_LAST_RUNNING + before, k]
            accounts[_SENT, k] = 0


@inner_inlined
def _best_core(accounts: Longs) -> int:
    best, least = 0, np.int64(1) << 40
    for k in range(accounts.shape[1]):
        waiting = accounts[_WAITING, k] + accounts[_SENT, k]
        score = _WAITING_WEIGHT * waiting + accounts[_RUNNING, k]
        if score < least:
            best, least = k, score
    return best


@inner
def _count(fleet: Fleet, accounts: Longs, clock: Floats) -> None:
    """What the cores count at the end of an iteration: who came during it is not known yet."""
    for k in range(accounts.shape[1]):
        core = fleet.replicas[k]
        known = np.int64(core.running + core.waiting) - accounts[_CAME, k]
        running = min(known, np.int64(core.running))
        accounts[_CAME, k] = 0
        accounts[_BEFORE_WAITING, k] = accounts[_LAST_WAITING, k]
        accounts[_BEFORE_RUNNING, k] = accounts[_LAST_RUNNING, k]
        accounts[_LAST_WAITING, k] = known - running
        accounts[_LAST_RUNNING, k] = running
    clock[_ENDED] += 1.0


@inner
def _start_together(fleet: Fleet, now_ms: float) -> float:
    """Start iterations on all cores; returns when they end, inf where none has a request.

    The stretch goes as far as that of each core, and while the slowest one stays the slowest.
    """
    slowest = NONE
    length: Any = np.int64(1) << 40
    for k in range(fleet.replicas.shape[0]):
        start_iteration(fleet, k, now_ms)
        core = fleet.replicas[k]
        if core.length > 0:
            length = min(length, core.length)
            if slowest == NONE or core.base_ms > fleet.replicas[slowest].base_ms:
                slowest = k
    if slowest == NONE:
        return np.inf
    base_ms, growth_ms = fleet.replicas[slowest].base_ms, fleet.replicas[slowest].growth_ms
    for k in range(fleet.replicas.shape[0]):
        core = fleet.replicas[k]
        if core.length > 0 and core.growth_ms > growth_ms:
            until = (base_ms - core.base_ms) / (core.growth_ms - growth_ms)
            length = min(length, np.int64(min(until, 1e12)) + 1)
    end_ms = now_ms + stretch_ms(base_ms, growth_ms, length)
    for k in range(fleet.replicas.shape[0]):
        core = fleet.replicas[k]
        if core.length > 0:
            core.base_ms, core.growth_ms = base_ms, growth_ms
            core.length, core.end_ms = length, end_ms
    return end_ms


@inner
def _cut_together(fleet: Fleet, now_ms: float, end_ms: float) -> float:
    """End the stretch for an arrival; returns when."""
    for k in range(fleet.replicas.shape[0]):
        if fleet.replicas[k].length > 0:
            cut_stretch(fleet, k, now_ms, fleet.engines[k].see_late)
            end_ms = fleet.replicas[k].end_ms
    return end_ms


def _run(fleet: Fleet, accounts: Longs, clock: Floats, core_of: Ints) -> None:
    arrivals = fleet.questions.shape[0]
    end_ms = np.inf
    i = 0
    while True:
        now_ms = fleet.questions[i].arrival_ms if i < arrivals else np.inf
        if end_ms <= now_ms:
            if end_ms == np.inf:
                return
            _report(accounts, clock, end_ms)
            for k in range(fleet.replicas.shape[0]):
                if fleet.replicas[k].length > 0:
                    finish_stretch(fleet, k)
            end_ms = _start_together(fleet, end_ms)
            _count(fleet, accounts, clock)
            continue
        _report(accounts, clock, now_ms)
        k = _best_core(accounts)
        accounts[_SENT, k] += 1
        accounts[_CAME, k] += 1
        core_of[i] = k
        fleet.flights[i].sent_ms = now_ms
        count_sent(fleet.in_flight, k, i, fleet.questions[i].prompt_tokens)
        join_queue(fleet, k, i)
        if end_ms == np.inf:
            end_ms = _start_together(fleet, now_ms)
        else:
            end_ms = _cut_together(fleet, now_ms, end_ms)
        i += 1


@cache
def lockstep_loop() -> Kernel:
    """The event loop of cores that start their iterations together."""
    accounts = types.int64[:, ::1], types.float64[::1]
    return Kernel(_run, types.void(typeof(smallest_fleet()), *accounts, types.int32[::1]))


def run_in_lockstep(fleet: Fleet) -> Ints:
    """Run all requests of the fleet on its replicas as cores; returns the core of each.

    Each must fit into a core's blocks by itself, and the cores are set alike.
    """
    fleet.knowledge.clock["keeps_holders"] = False
    core_of = np.full(fleet.questions.shape[0], NONE, dtype=np.int32)
    accounts = np.zeros((_ROWS, fleet.replicas.shape[0]), dtype=np.int64)
    lockstep_loop()(fleet, accounts, np.zeros(2), core_of)
    return core_of
