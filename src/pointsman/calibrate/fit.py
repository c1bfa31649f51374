"""The five parameters of IterationCosts, fitted so that the simulated run agrees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pointsman.calibrate.recording import Recording, Times
from pointsman.calibrate.simplex import Minimum, minimise
from pointsman.calibrate.simulated import Twin, twin_of
from pointsman.costs.iteration import IterationCosts
from pointsman.workload.workload import Floats

# Relative residuals count squared up to about this, and by their size beyond it: a few requests
# that a different admission moved by seconds do not bend the costs of all others.
_SOFT = 0.05
_TTFT_FLOOR_MS = 200.0  # a TTFT counts relative to itself plus this, for short ones are all noise
_WAIT_FLOOR_MS = 1000.0  # a wait in the queue likewise
_LEAST_TPOT_MS = 0.1

# One after the other, each from where the last one ended: wide ones step over the many small
# valleys that other admissions make, narrow ones find the bottom. In logarithms of the costs.
_SIMPLEX_SIZES = (1.0, 0.5, 0.2, 0.08)
_STEPS = 400
_LOG_RANGE = (-60.0, 20.0)


@dataclass(frozen=True, slots=True)
class Fit:
    """The costs found, on which engine, and the loss that is left."""

    twin: Twin
    costs: IterationCosts
    loss: float


def fit_costs(recording: Recording, fit_first: int, shared_blocks: float) -> Fit:
    """The costs with which the first requests' times are met best, with or without asynchronous
    scheduling, whichever meets them better.

    All requests are simulated; the recorded times of the first ``fit_first`` enter the loss.
    """
    recorded = recording.times.rows(slice(fit_first))
    starts = [np.log(start) for start in _starts(recording, recorded)]
    known = recording.setup.async_scheduling
    twins = [
        twin_of(recording, shared_blocks, late)
        for late in ((False, True) if known is None else (known,))
    ]
    fits = [_fit(twin, recorded, start) for twin in twins for start in starts]
    return min(fits, key=lambda fit: fit.loss)


def _fit(twin: Twin, recorded: Times, start: Floats) -> Fit:
    chosen = slice(recorded.arrival_ms.size)

    def loss(point: Floats) -> float:
        return robust_loss(residuals(recorded, twin.run(_costs(point)).rows(chosen)))

    found = Minimum(start, loss(start))
    for step in _SIMPLEX_SIZES:
        found = minimise(loss, found.point, step, _STEPS)
    return Fit(twin, _costs(found.point), found.loss)


def _costs(point: Floats) -> IterationCosts:
    return IterationCosts(*np.exp(np.clip(point, *_LOG_RANGE)).tolist())


def residuals(recorded: Times, simulated: Times) -> Floats:
    """How far each time of each request is off, relatively."""
    several = recorded.output_tokens > 1
    tpot = np.maximum(recorded.tpot_ms[several], _LEAST_TPOT_MS)
    ours = np.maximum(simulated.tpot_ms[several], _LEAST_TPOT_MS)
    e2e = np.maximum(recorded.e2e_ms, _LEAST_TPOT_MS)
    return np.concatenate(
        (
            (simulated.ttft_ms - recorded.ttft_ms) / (recorded.ttft_ms + _TTFT_FLOOR_MS),
            (simulated.wait_ms - recorded.wait_ms) / (recorded.wait_ms + _WAIT_FLOOR_MS),
            np.log(simulated.e2e_ms / e2e),
            np.log(ours / tpot),
        )
    )


def robust_loss(values: Floats) -> float:
    """The sum of pseudo-Huber losses."""
    return float(np.sum(np.sqrt(1.0 + (values / _SOFT) ** 2) - 1.0))


def _starts(recording: Recording, recorded: Times) -> Iterator[Floats]:
    """Two engines that could have been it, from the fastest tokens and prompts recorded.

    One spends most of an iteration on what does not depend on the batch, the other one less of
    it, and more on each request, KV token and pair of prompt tokens.
    """
    token_ms = _fast(recorded.tpot_ms)
    prompt = recording.prompt_tokens[: recorded.arrival_ms.size]
    prompt_ms = _fast((recorded.first_token_ms - recorded.scheduled_ms) / prompt)
    if not token_ms > 0.0:  # no request has a second token
        token_ms = prompt_ms
    yield np.array([0.9, 0.0, 0.001, 3e-6, 0.0]) * token_ms + _prefill(0.8 * prompt_ms, 5e-6)
    yield np.array([0.5, 0.0, 0.004, 1e-5, 0.0]) * token_ms + _prefill(0.4 * prompt_ms, 2e-5)


def _prefill(token_ms: float, attention: float) -> Floats:
    return np.array([0.0, token_ms, 0.0, 0.0, attention * token_ms])


def _fast(values: Floats) -> float:
    """The 10th percentile of what is there and positive; a microsecond where nothing is."""
    values = values[values > 0.0]
    return float(np.quantile(values, 0.1)) if values.size else 1e-3
