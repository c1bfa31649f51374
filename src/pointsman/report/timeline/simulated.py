"""Simulated runs as stories: the times are those of the result's columns, and no others.

What a run does not keep is not shown: when a request was preempted (how often is), and what became
of tries before the last one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pointsman.report.timeline.story import (
    NOWHERE,
    ROUTER,
    Arrow,
    Gauge,
    Instants,
    Places,
    Stage,
    Stay,
    Story,
)
from pointsman.sim.batching import FleetRun
from pointsman.sim.fifo import Routed
from pointsman.sim.timeline import KV_USE, even_samples
from pointsman.workload.workload import Floats, Workload

QUEUED, SERVED = "queued", "served"
PREFILL, DECODE = "prefill", "decode"
PREEMPTED = "decode, preempted"  # of a request that was preempted, whenever that was
HANDED_OFF, RECEIVES, FIRST_STEP = "hand-off", "receives KV", "first decode step"

# ``sim.batching_state``'s causes, by number from 1.
_CAUSES = (
    "rejected: can never fit",
    "failed: its replica died mid-stream",
    "failed: no replica",
    "failed: tries used",
)


def story_of_single(routed: Routed) -> Story:
    """A run on replicas that serve one request at a time."""
    workload, place = routed.workload, routed.replica.astype(np.int64)
    queued = Stage(QUEUED, ".", workload.arrival_ms, routed.start_ms)
    served = Stage(SERVED, "#", routed.start_ms, routed.finish_ms)
    return Story(
        label=routed.policy.label,
        places=tuple(f"replica {r}" for r in range(routed.fleet.replicas)),
        requests=_names(workload),
        stays=(Stay(place, (queued,), runs=False), Stay(place, (served,), runs=True)),
        instants=(
            Instants(
                routed.policy.reasons, routed.reason, workload.arrival_ms, (("replica", place),)
            ),
        ),
        facts={
            "prompt_tokens": workload.prompt_tokens,
            "output_tokens": workload.output_tokens,
            "cached_tokens": routed.cached_tokens,
        },
    )


def story_of_fleet(run: FleetRun) -> Story:
    """A run on replicas that batch, prefill and decode apart or not."""
    is_split = run.fleet.split is not None
    return Story(
        label=run.policy.label,
        places=_places(run),
        requests=_names(run.workload),
        stays=(_before(run), *(_apart(run) if is_split else _together(run))),
        instants=(_choices(run), _failures(run)),
        # From the prefill of the second stay to the first step of the fourth.
        arrows=(Arrow("hand-off", (2, 0), (4, 1)),) if is_split else (),
        gauges=_gauges(run),
        facts={
            "prompt_tokens": run.workload.prompt_tokens,
            "output_tokens": run.workload.output_tokens,
            "cached_tokens": run.cached_tokens,
            "preemptions": run.preemptions,
            "expected_wait_ms": run.expected_wait_ms,
        },
    )


def _names(workload: Workload) -> list[str]:
    return [workload.names.request(row) for row in range(len(workload))]


def _places(run: FleetRun) -> tuple[str, ...]:
    count, split = len(run.fleet.engines), run.fleet.split
    if split is None:
        return tuple(f"replica {r}" for r in range(count))
    roles = ["prefill"] * split.prefill + ["decode"] * (count - split.prefill)
    return tuple(f"replica {r} ({role})" for r, role in enumerate(roles))


def _stage(run: FleetRun, what: tuple[str, str], begin_ms: Floats, end_ms: Floats) -> Stage:
    """Of the requests that finished: the times of others are of no one try."""
    return Stage(*what, begin_ms, end_ms).only(run.finished)


def _place(run: FleetRun, replica: NDArray[np.int32]) -> Places:
    return np.where(run.finished, replica, NOWHERE).astype(np.int64)


def _sent_ms(run: FleetRun) -> Floats:
    """When each request was sent to the replica that computed its prompt."""
    sent_ms = run.state.flights["sent_ms"][: len(run.workload)]
    return np.where(run.finished, sent_ms, np.nan)


def _before(run: FleetRun) -> Stay:
    """From a request's coming until it was sent where it was served."""
    sent_ms = _sent_ms(run)
    name = "held" if run.conditions.holding is not None else "tried elsewhere"
    stage = Stage(name, "h", run.arrival_ms, sent_ms).only(sent_ms > run.arrival_ms)
    return Stay(np.full(len(run.workload), ROUTER), (stage,), runs=False)


def _together(run: FleetRun) -> tuple[Stay, Stay]:
    place = _place(run, run.replica)
    scheduled_ms = np.ascontiguousarray(run.prefills["scheduled_ms"])
    queued = _stage(run, (QUEUED, "."), _sent_ms(run), scheduled_ms)
    prefill = _stage(run, (PREFILL, "="), scheduled_ms, run.first_token_ms)
    seat = (prefill, *_decodes(run))
    return Stay(place, (queued,), runs=False), Stay(place, seat, runs=True)


def _decodes(run: FleetRun) -> tuple[Stage, Stage]:
    """From the first token to the last, under two names."""
    decode = _stage(run, (DECODE, "#"), run.first_token_ms, run.finish_ms)
    preempted = run.preemptions > 0
    return decode.only(~preempted), decode.only(preempted, PREEMPTED)


def _apart(run: FleetRun) -> tuple[Stay, Stay, Stay, Stay]:
    """The prefill replica keeps a request's seat and blocks until they are fetched."""
    assert run.fleet.split is not None
    prefills, decodes = run.prefills, run.progress
    here, there = _place(run, run.replica), _place(run, run.decode_replica)
    taken_ms, computed_ms = (np.array(prefills[name]) for name in ("scheduled_ms", "finish_ms"))
    seated_ms, received_ms = (np.array(decodes[name]) for name in ("scheduled_ms", "received_ms"))
    came_ms = computed_ms + run.fleet.split.base_ms
    prefill = (
        _stage(run, (PREFILL, "="), taken_ms, computed_ms),
        _stage(run, (HANDED_OFF, ">"), computed_ms, received_ms),
    )
    decode = (
        _stage(run, (RECEIVES, ">"), seated_ms, received_ms),
        _stage(run, (FIRST_STEP, "#"), received_ms, run.first_token_ms),
        *_decodes(run),
    )
    return (
        Stay(here, (_stage(run, (QUEUED, "."), _sent_ms(run), taken_ms),), runs=False),
        Stay(here, prefill, runs=True),
        Stay(there, (_stage(run, (QUEUED, "."), came_ms, seated_ms),), runs=False),
        Stay(there, decode, runs=True),
    )


def _choices(run: FleetRun) -> Instants:
    """The last choice for each request that finished, when it was sent."""
    places = [("replica", _place(run, run.replica))]
    if run.fleet.split is not None:
        places.append(("decode replica", _place(run, run.decode_replica)))
    return Instants(run.policy.reasons, run.reason, _sent_ms(run), tuple(places))


def _failures(run: FleetRun) -> Instants:
    """What became of the others, when they came."""
    cause = np.maximum(run.prefills["cause"], run.progress["cause"])
    at_ms = np.where(cause > 0, run.arrival_ms, np.nan)
    return Instants(_CAUSES, cause - 1, at_ms)


def _gauges(run: FleetRun) -> tuple[Gauge, ...]:
    step_ms, samples = even_samples(run.state)
    at_ms = np.arange(samples.shape[1]) * step_ms
    return tuple(
        Gauge("KV cache used", "%", r, at_ms, 100.0 * samples[r, :, KV_USE].astype(np.float64))
        for r in range(samples.shape[0])
    )
