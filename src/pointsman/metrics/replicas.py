"""What each replica of a fleet did, and how unevenly the work was spread."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pointsman.core.errors import wrong_value
from pointsman.metrics.latency import NO_REPLICA, REJECTED, UNKNOWN_TOKENS, Answers
from pointsman.metrics.skew import skew_ratio
from pointsman.workload.workload import Floats


@dataclass(frozen=True, slots=True, eq=False)
class ReplicaLoads:
    """What engines say of themselves, a row a replica; NaN (iterations: -1) where one does not.

    The mean of the KV use is over time, from the first arrival to the last finish. ``evictions``
    is None where nobody counted. Raises InputError where columns differ in length or have no row.
    """

    busy_ms: Floats
    kv_used_mean_fraction: Floats
    kv_used_peak_fraction: Floats
    iterations: NDArray[Any]
    evictions: NDArray[Any] | None = None  # cached blocks that gave way to others

    def __post_init__(self) -> None:
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        shapes = {name: each.shape for name, each in columns.items() if each is not None}
        if len(set(shapes.values())) > 1 or len(self) == 0:
            raise wrong_value("replica loads", "shapes", shapes, "columns of one length >= 1")

    def __len__(self) -> int:
        return int(self.busy_ms.shape[0])


@dataclass(frozen=True, slots=True)
class ReplicaFigures:
    """What one replica did; rejected requests left out. None is unknown."""

    requests: int
    tokens: int  # of prompts and answers
    busy_ms: float | None
    iterations: int | None
    cached_token_fraction: float | None
    preemptions: int
    kv_used_mean_fraction: float | None
    kv_used_peak_fraction: float | None


@dataclass(frozen=True, slots=True)
class Skews:
    """(largest - smallest) / mean over the replicas, 0 for even; busy is None where unknown."""

    requests: float
    tokens: float
    busy: float | None


def replica_figures(answers: Answers, loads: ReplicaLoads) -> tuple[ReplicaFigures, ...]:
    """The figures of each replica. Raises InputError where an answer names one without loads."""
    _check_replicas(answers.replica, len(loads))
    taken = (answers.replica != NO_REPLICA) & (answers.status != REJECTED)
    told = taken & tells_cached(answers)
    cached = _sums(answers, told, answers.cached_tokens, len(loads))
    prompts = _sums(answers, told, answers.prompt_tokens, len(loads))
    tokens = _sums(answers, taken, answers.prompt_tokens, len(loads))
    tokens += _sums(answers, taken, answers.output_tokens, len(loads))
    requests = np.bincount(answers.replica[taken], minlength=len(loads))
    preemptions = _sums(answers, taken, answers.preemptions, len(loads))
    return tuple(
        ReplicaFigures(
            requests=int(requests[r]),
            tokens=int(tokens[r]),
            busy_ms=_known(loads.busy_ms[r]),
            iterations=int(loads.iterations[r]) if loads.iterations[r] >= 0 else None,
            cached_token_fraction=int(cached[r]) / int(prompts[r]) if prompts[r] else None,
            preemptions=int(preemptions[r]),
            kv_used_mean_fraction=_known(loads.kv_used_mean_fraction[r]),
            kv_used_peak_fraction=_known(loads.kv_used_peak_fraction[r]),
        )
        for r in range(len(loads))
    )


def skews(figures: tuple[ReplicaFigures, ...]) -> Skews:
    """How unevenly requests, tokens and busy time were spread."""
    busy_ms = [each.busy_ms for each in figures if each.busy_ms is not None]
    return Skews(
        requests=skew_ratio(np.array([each.requests for each in figures])),
        tokens=skew_ratio(np.array([each.tokens for each in figures])),
        busy=skew_ratio(np.array(busy_ms)) if len(busy_ms) == len(figures) else None,
    )


def tells_cached(answers: Answers) -> NDArray[np.bool_]:
    """Which requests count for the cached fraction: finished, and the engine says what it hit."""
    return np.asarray(answers.finished & (answers.cached_tokens != UNKNOWN_TOKENS))


def _check_replicas(replica: NDArray[Any], count: int) -> None:
    wrong = replica[(replica < NO_REPLICA) | (replica >= count)]
    if wrong.size:
        wanted = f"0..{count - 1}, as in the loads, or {NO_REPLICA} for none"
        raise wrong_value("answers", "replica", int(wrong[0]), wanted)


def _sums(
    answers: Answers, rows: NDArray[np.bool_], column: NDArray[Any], count: int
) -> NDArray[np.int64]:
    sums = np.bincount(answers.replica[rows], weights=column[rows], minlength=count)
    return sums.astype(np.int64)  # exact: whole numbers below 2^53


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
