"""Every figure of a fleet that serves tokens, from the columns of its answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pointsman.core.errors import wrong_value
from pointsman.metrics.goodput import Goodput, Objectives, goodput
from pointsman.metrics.intertoken import GapHistogram
from pointsman.metrics.latency import STATUS_NAMES, Answers, Spread, spread_of
from pointsman.metrics.rates import per_second, prompt_fraction, window_ms
from pointsman.metrics.replicas import (
    ReplicaFigures,
    ReplicaLoads,
    Skews,
    replica_figures,
    skews,
    tells_cached,
)
from pointsman.metrics.stages import MeanStages, mean_stages
from pointsman.workload.workload import Floats


@dataclass(frozen=True, slots=True)
class Handoff:
    """The hand-offs from prefill to decode replicas, of requests that finished.

    ``seat_wait_ms``: from a request's coming to its decode replica until that had a seat and blocks
    for it; without any value where nobody tells.
    """

    transfer_ms: Spread
    seat_wait_ms: Spread
    bytes: int | None  # None where nobody counted


@dataclass(frozen=True, slots=True)
class ServingMetrics:
    """What a fleet did for the requests it was offered.

    ``statuses`` counts every status, and its counts add up to ``offered``. Latencies and
    throughput are of finished requests only; the window of all rates, ``makespan_ms``, runs from
    the first arrival to the last finish, whatever happens later
    (inference-sim/inference-sim#1085), and failed requests' time stays in it. A rate is 0 where
    that window has no length.
    """

    offered: int
    statuses: dict[str, int]
    makespan_ms: float
    queue_wait_ms: Spread
    ttft_ms: Spread
    tpot_ms: Spread
    tpot_absent: int  # finished requests without one: of one token, or not streamed
    e2e_ms: Spread
    itl_ms: Spread | None  # token-weighted; None where nobody counted gaps
    handoff: Handoff | None  # None where prefill and decode are not apart
    stages: MeanStages
    requests_per_s: float
    output_tokens_per_s: float
    output_tokens_per_s_per_gpu: float
    goodput: Goodput | None  # None without objectives
    cached_token_fraction: float | None  # of finished requests' prompt tokens
    recomputed_token_fraction: float | None  # of the same; None, as evictions, if nobody counted
    evictions: int | None  # cached blocks that gave way to others, on all replicas
    preemptions: int
    utilisation: float | None  # busy time over replicas x makespan
    skews: Skews
    replicas: tuple[ReplicaFigures, ...]


def serving_metrics(
    answers: Answers,
    loads: ReplicaLoads,
    objectives: Objectives | None,
    gpus: int,
    gaps: GapHistogram | None = None,
) -> ServingMetrics:
    """The figures of a fleet on so many GPUs.

    Raises InputError for no GPU, and where an answer names a replica that has no loads.
    """
    if gpus < 1:
        raise wrong_value("serving metrics", "gpus", gpus, "an integer >= 1")
    finished = answers.finished
    makespan_ms = window_ms(answers.arrival_ms, answers.finish_ms)
    tokens_per_s = per_second(int(answers.output_tokens[finished].sum(dtype=np.int64)), makespan_ms)
    replicas = replica_figures(answers, loads)
    tpot_ms = spread_of(answers.tpot_ms)
    return ServingMetrics(
        offered=len(answers),
        statuses=_statuses(answers),
        makespan_ms=makespan_ms,
        queue_wait_ms=spread_of(answers.queue_wait_ms),
        ttft_ms=spread_of(answers.ttft_ms),
        tpot_ms=tpot_ms,
        tpot_absent=int(np.count_nonzero(finished)) - tpot_ms.count,
        e2e_ms=spread_of(answers.e2e_ms),
        itl_ms=gaps.spread() if gaps is not None else None,
        handoff=_handoff(answers),
        stages=mean_stages(answers),
        requests_per_s=per_second(int(np.count_nonzero(finished)), makespan_ms),
        output_tokens_per_s=tokens_per_s,
        output_tokens_per_s_per_gpu=tokens_per_s / gpus,
        goodput=goodput(answers, objectives) if objectives is not None else None,
        cached_token_fraction=cached_token_fraction(answers),
        recomputed_token_fraction=_recomputed_fraction(answers),
        evictions=None if loads.evictions is None else int(loads.evictions.sum()),
        preemptions=int(answers.preemptions.sum(dtype=np.int64)),
        utilisation=_utilisation(loads.busy_ms, makespan_ms),
        skews=skews(replicas),
        replicas=replicas,
    )


def _statuses(answers: Answers) -> dict[str, int]:
    counts = np.bincount(answers.status, minlength=len(STATUS_NAMES)).tolist()
    return dict(zip(STATUS_NAMES, counts, strict=True))


def cached_token_fraction(answers: Answers) -> float | None:
    """The share of the prompt tokens of finished requests that were cached; None where no engine
    says."""
    told = tells_cached(answers)
    if not told.any():
        return None
    return prompt_fraction(answers.cached_tokens[told], answers.prompt_tokens[told])


def _recomputed_fraction(answers: Answers) -> float | None:
    finished, recomputed = answers.finished, answers.recomputed_tokens
    if recomputed is None or not finished.any():
        return None
    return prompt_fraction(recomputed[finished], answers.prompt_tokens[finished])


def _handoff(answers: Answers) -> Handoff | None:
    if answers.handoff_ms is None:
        return None
    finished = answers.finished
    waits, sizes = answers.seat_wait_ms, answers.handoff_bytes
    return Handoff(
        transfer_ms=spread_of(answers.handoff_ms[finished]),
        seat_wait_ms=spread_of(waits[finished]) if waits is not None else Spread(),
        bytes=int(sizes[finished].sum(dtype=np.int64)) if sizes is not None else None,
    )


def _utilisation(busy_ms: Floats, makespan_ms: float) -> float | None:
    if np.isnan(busy_ms).any():
        return None
    return float(busy_ms.sum() / (busy_ms.size * makespan_ms)) if makespan_ms else 0.0
