"""A recorded run becomes costs, and says how far they are from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pointsman.calibrate.agreement import Agreement, agreement
from pointsman.calibrate.fit import TTFT_FLOOR_MS, Fit, fit_costs, residuals
from pointsman.calibrate.over_time import OverTime, over_time
from pointsman.calibrate.recording import Recording
from pointsman.calibrate.repeats import times_of_repeats
from pointsman.calibrate.sharing import Sharing, estimate_sharing
from pointsman.calibrate.simulated import twin_of
from pointsman.core.errors import wrong_value
from pointsman.costs.calibrated import (
    SCHEMA,
    CostFile,
    EngineFacts,
    Residuals,
    ValidityRange,
)
from pointsman.metrics.concurrency import most_at_once
from pointsman.sim.batching_state import ENGINE_MODEL
from pointsman.workload.workload import Floats

LEAST_FITTED = 5


@dataclass(frozen=True, slots=True)
class Calibration:
    """The costs of a recording, and how the simulated run agrees with it.

    ``overall`` is over all requests, ``held_out`` over those not fitted, None where all were.
    ``sharing`` is None where the recording does not tell; nothing is shared then. ``over_time`` is
    None where there are no gauges to compare with. ``repeats`` are folders of further runs of the
    same requests, whose figures stand beside the others.
    """

    recording: Recording
    fitted: int
    file: CostFile
    sharing: Sharing | None
    over_time: OverTime | None
    overall: Agreement
    held_out: Agreement | None
    repeats: tuple[Path, ...] = ()


def calibrate(
    recording: Recording,
    fit_first: int | None = None,
    repeats: Sequence[Recording] = (),
    ttft_floor_ms: float = TTFT_FLOOR_MS,
) -> Calibration:
    """Fit the costs to the times of the first ``fit_first`` requests to arrive, by default all.

    ``repeats`` do not change the costs: they say how much the engine differs from itself. A TTFT
    counts relative to itself plus ``ttft_floor_ms``. A function of its arguments. Raises InputError
    for fewer than 5 requests, or more than the recording has, and for a repeat of other requests or
    another setup.
    """
    fitted = _checked_count(recording, fit_first)
    again = times_of_repeats(recording, repeats)
    sharing = estimate_sharing(recording, fitted)
    shared_blocks = 0.0 if sharing is None else sharing.blocks
    fit = fit_costs(recording, fitted, shared_blocks, ttft_floor_ms)
    simulated = twin_of(recording, shared_blocks, fit.async_scheduling).run(fit.costs)
    rest = slice(fitted, len(recording))
    left = residuals(
        recording.times.rows(slice(fitted)),
        simulated.rows(slice(fitted)),
        ttft_floor_ms,
    )
    return Calibration(
        recording=recording,
        fitted=fitted,
        file=_cost_file(recording, fitted, shared_blocks, fit, left),
        sharing=sharing,
        over_time=over_time(recording, simulated),
        overall=agreement(recording.times, simulated, again),
        held_out=agreement(
            recording.times.rows(rest), simulated.rows(rest), [each.rows(rest) for each in again]
        )
        if fitted < len(recording)
        else None,
        repeats=tuple(each.folder for each in repeats),
    )


def _checked_count(recording: Recording, fit_first: int | None) -> int:
    count = len(recording)
    if count < LEAST_FITTED:
        raise wrong_value(
            str(recording.folder), "the number of requests", count, f"at least {LEAST_FITTED}"
        )
    if fit_first is None:
        return count
    if not LEAST_FITTED <= fit_first <= count:
        wanted = f"an integer in {LEAST_FITTED}..{count}, the requests of the run"
        raise wrong_value(str(recording.folder), "fit-first", fit_first, wanted)
    return fit_first


def _cost_file(
    recording: Recording, fitted: int, shared_blocks: float, fit: Fit, left: Floats
) -> CostFile:
    setup = recording.setup
    return CostFile(
        schema=SCHEMA,
        costs=fit.costs,
        shared_blocks=shared_blocks,
        engine=EngineFacts(
            model=ENGINE_MODEL,
            version=setup.version,
            served_model=setup.model,
            tensor_parallel=setup.tensor_parallel,
            engine_cores=setup.engine_cores,
            max_num_seqs=setup.max_num_seqs,
            max_num_batched_tokens=setup.max_num_batched_tokens,
            kv_blocks=setup.kv_blocks,
            block_size=setup.block_size,
            async_scheduling=fit.async_scheduling,
        ),
        fitted_requests=fitted,
        valid_up_to=_range(recording, fitted),
        residuals=Residuals(fit.loss, float(np.mean(np.abs(left)))),
    )


def _range(recording: Recording, fitted: int) -> ValidityRange:
    setup, times = recording.setup, recording.times.rows(slice(fitted))
    prompt, output = recording.prompt_tokens[:fitted], recording.output_tokens[:fitted]
    span_ms = float(times.arrival_ms[-1] - times.arrival_ms[0])
    ones = np.ones(fitted, dtype=np.int64)
    batch = most_at_once(times.scheduled_ms, times.finish_ms, ones)
    kv_tokens = most_at_once(times.scheduled_ms, times.finish_ms, prompt.astype(np.int64) + output)
    if setup.kv_blocks is not None:
        kv_tokens = min(kv_tokens, setup.kv_blocks * setup.block_size * setup.engine_cores)
    return ValidityRange(
        prompt_tokens=int(prompt.max()),
        output_tokens=int(output.max()),
        batch=min(batch, setup.max_num_seqs * setup.engine_cores),
        kv_tokens=kv_tokens,
        rate_rps=(fitted - 1) * 1000.0 / span_ms if span_ms else 0.0,
    )
