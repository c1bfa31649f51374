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
# that a different admission moved by seconds do not bend the costs of all others. A TTFT is made of
# few iterations, and which ones is half chance; E2E and TPOT are sums over hundreds of them.
_SOFT_TTFT, _SOFT = 0.05, 0.02
TTFT_FLOOR_MS = 200.0  # a TTFT counts relative to itself plus this, for short ones are all noise
_LEAST_TPOT_MS = 0.1

# One after the other, each from where the last one ended: wide ones step over the many small
# valleys that other admissions make, narrow ones find the bottom, and all of it once more. In
# logarithms of the costs.
_SIMPLEX_SIZES = (1.0, 0.5, 0.2, 0.08, 0.7, 0.3, 0.08)
_STEPS = 400
_LOG_RANGE = (-60.0, 20.0)


@dataclass(frozen=True, slots=True)
class Fit:
    """The costs found, for which engine, and the loss that is left."""

    async_scheduling: bool
    costs: IterationCosts
    loss: float


def fit_costs(
    recording: Recording, fit_first: int, shared_blocks: float, ttft_floor_ms: float = TTFT_FLOOR_MS
) -> Fit:
    """The costs with which the first requests' times are met best; where it is not known whether
    scheduling is asynchronous, with or without, whichever meets them better.

    A TTFT counts relative to itself plus ``ttft_floor_ms``. Simulated are the requests that came
    before the last one of the first ``fit_first`` was finished, for no other can have had an
    influence.
    """
    recorded = recording.times.rows(slice(fit_first))
    known = recording.setup.async_scheduling
    before = recording.first(_involved(recording, recorded))
    twins = [
        twin_of(before, shared_blocks, late)
        for late in ((False, True) if known is None else (known,))
    ]
    fits = []
    for twin in twins:
        expected = _expected(twin, recorded)
        starts = (expected, *_starts(recording, recorded))
        far = _Distance(recorded, ttft_floor_ms)
        fits += [_fit(twin, far, np.log(start), np.log(expected)) for start in starts]
    return min(fits, key=lambda fit: fit.loss)


def _involved(recording: Recording, recorded: Times) -> int:
    end_ms = recorded.finish_ms.max()
    return int(np.searchsorted(recording.times.arrival_ms, end_ms, side="right"))


@dataclass(frozen=True, slots=True)
class _Distance:
    """How far a simulated run is from the first requests recorded."""

    recorded: Times
    ttft_floor_ms: float

    def __call__(self, simulated: Times) -> float:
        """A TTFT is softer than what is a sum over many iterations."""
        chosen = slice(self.recorded.arrival_ms.size)
        left = residuals(self.recorded, simulated.rows(chosen), self.ttft_floor_ms)
        softness = np.full(left.size, _SOFT)
        softness[chosen] = _SOFT_TTFT
        return _robust(left / softness)


def _fit(twin: Twin, far: _Distance, start: Floats, expected: Floats) -> Fit:
    def loss(point: Floats) -> float:
        return far(twin.run(_costs(point))) + _robust(point - expected)

    found = Minimum(start, loss(start))
    for step in _SIMPLEX_SIZES:
        found = minimise(loss, found.point, step, _STEPS)
    return Fit(twin.async_scheduling, _costs(found.point), found.loss)


def _costs(point: Floats) -> IterationCosts:
    return IterationCosts(*np.exp(np.clip(point, *_LOG_RANGE)).tolist())


def residuals(recorded: Times, simulated: Times, ttft_floor_ms: float = TTFT_FLOOR_MS) -> Floats:
    """How far the TTFT of each request is off, relatively, then each E2E and TPOT."""
    several = recorded.output_tokens > 1
    tpot = np.maximum(recorded.tpot_ms[several], _LEAST_TPOT_MS)
    ours = np.maximum(simulated.tpot_ms[several], _LEAST_TPOT_MS)
    e2e = np.maximum(recorded.e2e_ms, _LEAST_TPOT_MS)
    ttft = (simulated.ttft_ms - recorded.ttft_ms) / (recorded.ttft_ms + ttft_floor_ms)
    return np.concatenate((ttft, np.log(simulated.e2e_ms / e2e), np.log(ours / tpot)))


def _robust(values: Floats) -> float:
    """The sum of pseudo-Huber losses."""
    return float(np.sum(np.sqrt(1.0 + values**2) - 1.0))


def _starts(recording: Recording, recorded: Times) -> Iterator[Floats]:
    """Two more engines that could have been it, from the fastest tokens and prompts recorded.

    One spends most of an iteration on what does not depend on the batch, the other one less of
    it, and more on each request, KV token and pair of prompt tokens.
    """
    token_ms, prompt_ms = _fastest(recording, recorded)
    yield np.array([0.9, 0.0, 0.001, 3e-6, 0.0]) * token_ms + _prefill(0.8 * prompt_ms, 5e-6)
    yield np.array([0.5, 0.0, 0.004, 1e-5, 0.0]) * token_ms + _prefill(0.4 * prompt_ms, 2e-5)


def _expected(twin: Twin, recorded: Times) -> Floats:
    """What the costs are taken to be, within a factor of some three, where the times do not tell.

    Of an iteration with the run's mean batch half does not depend on the batch, and a quarter each
    goes with the requests and with the KV tokens; of a prompt of mean length a quarter goes with
    its attention.
    """
    count = recorded.arrival_ms.size
    prompt = twin.recording.prompt_tokens[:count]
    token_ms, prompt_ms = _fastest(twin.recording, recorded)
    prompt_ms /= 2.0 if twin.async_scheduling else 1.0  # an iteration passes before it starts
    decode_ms = recorded.finish_ms - recorded.first_token_ms
    batch = max(1.0, np.sum(decode_ms) / recorded.finish_ms.max())
    tokens = batch * float(np.mean(prompt + 0.5 * recorded.output_tokens))
    shares = np.array([0.5, 0.0, 0.25 / batch, 0.25 / tokens, 0.0])
    return shares * token_ms + _prefill(0.75 * prompt_ms, 1.0 / (3.0 * float(np.mean(prompt))))


def _prefill(token_ms: float, attention: float) -> Floats:
    return np.array([0.0, token_ms, 0.0, 0.0, attention * token_ms])


def _fastest(recording: Recording, recorded: Times) -> tuple[float, float]:
    """The fastest tokens, and the fastest prompts in ms per token; with asynchronous scheduling
    the iteration before is in them."""
    token_ms = _fast(recorded.tpot_ms)
    prompt = recording.prompt_tokens[: recorded.arrival_ms.size]
    prompt_ms = _fast((recorded.first_token_ms - recorded.scheduled_ms) / prompt)
    return (token_ms if np.any(recorded.tpot_ms > 0.0) else prompt_ms), prompt_ms


def _fast(values: Floats) -> float:
    """The 10th percentile of what is there and positive; a microsecond where nothing is."""
    values = values[values > 0.0]
    return float(np.quantile(values, 0.1)) if values.size else 1e-3
