"""How many leading blocks the prompts of a recorded run share, from its gauges.

What the requests that run need, were nothing shared, is known: their prompts, and what they have
generated, for the gauges count each generated token. What they use is recorded. Where they use
less, blocks are shared. Source of the facts about the scheduler: docs/simulator.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pointsman.calibrate.gauge_clock import clock_offset_ms
from pointsman.calibrate.gauges import Gauges
from pointsman.calibrate.recording import Recording, Times
from pointsman.workload.workload import Floats, Longs

MOST_SHARED_BLOCKS = 8.0

_LEAST_SAMPLES = 5
_MOST_UNCOUNTED = 0.02  # of all tokens: beyond it the gauges' throughput is no count


@dataclass(frozen=True, slots=True)
class Sharing:
    """Blocks saved per running request but one, in the mean over ``samples`` of the gauges."""

    blocks: float
    samples: int


@dataclass(frozen=True, slots=True)
class _Sample:
    """Who runs at an instant of the gauges, in the order of admission, and what they generated."""

    at_ms: float
    running: Longs
    generated: Floats
    used_blocks: float


def estimate_sharing(recording: Recording, fit_first: int) -> Sharing | None:
    """The leading blocks that prompts share, in the mean, clamped to 0..8.

    From samples until the last of the first ``fit_first`` requests was first scheduled. None where
    they do not tell: without gauges or a known number of blocks, with several engine cores, and
    with fewer than 5 samples at which only requests beyond their prompt ran.
    """
    setup, gauges = recording.setup, recording.gauges
    if gauges is None or setup.kv_blocks is None or setup.engine_cores > 1:
        return None
    if not setup.prefix_caching:
        return Sharing(0.0, 0)
    times = recording.times.rows(slice(fit_first))
    offset_ms = clock_offset_ms(recording, times, gauges)
    if offset_ms is None or not _counts_all_tokens(recording, gauges):
        return None
    samples = list(_samples(times, gauges, offset_ms, setup.kv_blocks))
    if len(samples) < _LEAST_SAMPLES:
        return None
    size = setup.block_size
    saved = [_needed_blocks(recording, sample, size) - sample.used_blocks for sample in samples]
    others = sum(sample.running.size - 1 for sample in samples)
    return Sharing(float(np.clip(sum(saved) / others, 0.0, MOST_SHARED_BLOCKS)), len(samples))


def _needed_blocks(recording: Recording, sample: _Sample, size: int) -> float:
    """Blocks for all tokens but the last one of each; the last block is half full in the mean."""
    tokens = recording.prompt_tokens[sample.running] + sample.generated - 1.0
    return float(np.sum(tokens) / size + sample.running.size * (size - 1) / (2 * size))


def _counts_all_tokens(recording: Recording, gauges: Gauges) -> bool:
    """Whether the throughput adds up to what the requests generated."""
    tokens = float(np.sum(recording.output_tokens, dtype=np.float64))
    counted = float(np.max(gauges.generated_tokens, initial=0.0))
    return abs(counted - tokens) <= _MOST_UNCOUNTED * tokens


def _samples(times: Times, gauges: Gauges, offset_ms: float, capacity: int) -> Iterator[_Sample]:
    """The samples at which at least two requests run, each beyond its prompt."""
    count = times.arrival_ms.size
    generated, ran, before_ms = np.zeros(count), np.zeros(count, dtype=np.bool_), 0.0
    total = 0.0
    for k, at_ms in enumerate(gauges.t_ms + offset_ms):
        if at_ms > times.scheduled_ms.max():
            return
        running = _running(times, at_ms, int(gauges.running[k]))
        runs = np.zeros(count, dtype=np.bool_)
        runs[running] = True
        shares = _shares(times, (before_ms, at_ms), ran, runs)
        generated = _counted(times, at_ms, generated, gauges.generated_tokens[k] - total, shares)
        ran, before_ms, total = runs, at_ms, gauges.generated_tokens[k]
        used = gauges.kv_used_fraction[k] * capacity
        complete = running.size == int(gauges.running[k]) >= 2
        if complete and used > 0.0 and bool(np.all(times.first_token_ms[running] <= at_ms)):
            yield _Sample(at_ms, running, generated[running], used)


def _running(times: Times, at_ms: float, count: int) -> Longs:
    """The first so many of those admitted and not finished: the last ones are preempted first,
    and resumed in their order."""
    live = np.flatnonzero((times.scheduled_ms <= at_ms) & (times.finish_ms > at_ms))
    by_admission = live[np.argsort(times.scheduled_ms[live], kind="stable")]
    return np.asarray(by_admission[:count])


def _shares(
    times: Times,
    interval_ms: tuple[float, float],
    ran: NDArray[np.bool_],
    runs: NDArray[np.bool_],
) -> Floats:
    """For what part of an interval each request decoded: the engine gives each that does a token
    an iteration. One preempted or resumed in it did half the time."""
    before_ms, at_ms = interval_ms
    part = (at_ms - np.maximum(times.first_token_ms, before_ms)) / (at_ms - before_ms)
    stayed = np.where(runs & (ran | (times.first_token_ms > before_ms)), 1.0, 0.5 * (runs | ran))
    decoding = (times.first_token_ms <= at_ms) & (times.finish_ms > at_ms)
    return np.where(decoding, np.clip(part, 0.0, 1.0) * stayed, 0.0)


def _counted(
    times: Times, at_ms: float, generated: Floats, tokens: float, shares: Floats
) -> Floats:
    """Tokens of each request at the end of an interval in which so many were generated in all.

    A finished request has all of its own, one that got its first token has at least that; the rest
    goes to those that decode by their shares.
    """
    at_least = np.where(times.first_token_ms <= at_ms, np.maximum(generated, 1.0), generated)
    known = np.where(times.finish_ms <= at_ms, times.output_tokens, at_least)
    rest = max(0.0, tokens - float(np.sum(known - generated)))
    whole = float(np.sum(shares))
    return known + rest * shares / whole if whole else known
