"""Costs of one replica, fitted to what was measured of it, and what they hold for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pointsman.bench.client.rows import Row
from pointsman.bench.experiment import GroupRun
from pointsman.bench.prediction.limits import EngineLimits
from pointsman.bench.prediction.offered import Offered
from pointsman.bench.prediction.overhead import overhead_ms
from pointsman.bench.prediction.recorded import is_whole, recording_of
from pointsman.calibrate.agreement import Agreement
from pointsman.calibrate.calibration import calibrate
from pointsman.calibrate.fit import TTFT_FLOOR_MS
from pointsman.calibrate.recording import Recording, Times
from pointsman.core.errors import InputError, wrong_value
from pointsman.costs.calibrated import CostFile


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The costs of the engine of ``run``, and what a request takes before it.

    ``agreement``: the recorded and the simulated times of the repeat that was fitted to, which is
    the one whose mean E2E is the median of all. ``has_router``: requests came through one, so that
    what it takes is in ``overhead_ms``.
    """

    run: GroupRun
    file: CostFile
    limits: EngineLimits
    overhead_ms: float
    repeat: int
    agreement: Agreement
    remarks: tuple[str, ...]
    has_router: bool = False


def calibrated(
    run: GroupRun, repeats: Sequence[Sequence[Row]], offered: Offered, limits: EngineLimits
) -> Calibrated:
    """Fit the costs to the rows of one replica, of all its repeats.

    A function of its arguments. Raises InputError where the group is more than one replica, where
    its rows are of another workload, and where fewer than 5 requests of a repeat ended well.
    """
    if run.group.engines != 1:
        wanted = "one, whose costs can be told from nothing else"
        raise wrong_value(run.name, "replicas", run.group.engines, wanted)
    if not repeats:
        raise InputError(f"{run.name}: no repeat; expected at least one, to fit costs to")
    chosen = _typical(run.name, repeats)
    rows = repeats[chosen]
    before_ms = overhead_ms(rows)
    recording = _at_the_engine(recording_of(run.name, rows, offered, limits), before_ms)
    found = calibrate(recording, ttft_floor_ms=_floor_ms(recording.times))
    return Calibrated(
        run=run,
        file=found.file,
        limits=limits,
        overhead_ms=before_ms,
        repeat=chosen + 1,
        agreement=found.overall,
        remarks=_remarks(run.name, rows),
        has_router=any(row.replica is not None for row in rows),
    )


def _typical(name: str, repeats: Sequence[Sequence[Row]]) -> int:
    """The repeat with the median mean E2E, the lower one of two."""
    means = []
    for rows in repeats:
        each = [(row.last_token_ms or 0.0) - row.intended_ms for row in rows if is_whole(row)]
        if not each:
            raise InputError(f"{name}: a repeat in which no request ended well; expected some")
        means.append(sum(each) / len(each))
    return sorted(range(len(means)), key=means.__getitem__)[(len(means) - 1) // 2]


def _at_the_engine(recording: Recording, before_ms: float) -> Recording:
    """Requests arrive there when what is before it is over; so, in a closed loop, do the next."""
    times, workload, loop = recording.times, recording.workload, recording.closed_loop
    assert workload is not None, "rows were recorded with their workload"
    came_ms = np.minimum(times.arrival_ms + before_ms, times.first_token_ms)
    arrival_ms = np.maximum.accumulate(came_ms)
    return replace(
        recording,
        times=replace(times, arrival_ms=arrival_ms, scheduled_ms=arrival_ms),
        workload=replace(workload, arrival_ms=arrival_ms),
        closed_loop=loop and replace(loop, think_ms=loop.think_ms + before_ms),
    )


def _floor_ms(times: Times) -> float:
    """Short TTFTs are all noise; which are short depends on the engine."""
    return min(TTFT_FLOOR_MS, float(np.median(times.ttft_ms)))


def _remarks(name: str, rows: Sequence[Row]) -> tuple[str, ...]:
    lost = sum(not is_whole(row) for row in rows)
    if not lost:
        return ()
    return (
        f"{lost} of {len(rows)} requests of {name} did not end well; what they cost the engine is"
        " not known and not in the costs",
    )
