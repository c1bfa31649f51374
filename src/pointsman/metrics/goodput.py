"""Goodput: the requests that met every objective, out of **all** that were offered.

Errors and refusals are offered and not met; a client that divides by its successes calls a service
that refuses a third of its requests perfect (kubernetes-sigs/inference-perf does so).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from pointsman.core.errors import InputError, shown, unknown_name, wrong_value
from pointsman.metrics.latency import Answers
from pointsman.metrics.rates import per_second, window_ms

_EXAMPLE = "such as ttft:3000 tpot:60 e2el:20000"


@dataclass(frozen=True, slots=True)
class Objectives:
    """What a request must keep, each in ms and at most; None asks for nothing."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2el_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Goodput:
    """How many of the offered requests met all objectives.

    ``vacuous_tpot`` counts those of ``met`` that have a TPOT objective and no TPOT, because their
    answer is one token. ``requests_per_s`` is over the window from first arrival to last finish.
    """

    objectives: Objectives
    offered: int
    met: int
    fraction: float | None  # None where nothing was offered
    requests_per_s: float
    vacuous_tpot: int


def objectives_of(words: Sequence[str]) -> Objectives:
    """Objectives from vLLM's own words, ``ttft:3000 tpot:60 e2el:20000``: ms, all must hold.

    Raises InputError for a word of another form, an unknown name, one given twice, a limit that is
    not a finite number > 0, and for no word at all.
    Source: ``--goodput`` of ``vllm bench serve`` (vllm-project/vllm ``vllm/benchmarks/serve.py``).
    """
    if not words:
        raise InputError(f"goodput: no objective; expected at least one, {_EXAMPLE}")
    names = [field.name.removesuffix("_ms") for field in fields(Objectives)]
    limits: dict[str, float] = {}
    for word in words:
        name, colon, limit = word.partition(":")
        where = f"goodput {shown(word)}"
        if not colon:
            raise InputError(f"{where}: expected NAME:MILLISECONDS, {_EXAMPLE}")
        if name not in names:
            raise unknown_name(where, "objective", name, names)
        if f"{name}_ms" in limits:
            raise InputError(f"{where}: {name} is given twice; expected each objective once")
        limits[f"{name}_ms"] = _limit_ms(where, name, limit)
    return Objectives(**limits)


def met(answers: Answers, objectives: Objectives) -> NDArray[np.bool_]:
    """Which requests finished and kept every objective; a limit that is just reached is kept.

    A TPOT that is absent because the answer has one token is kept (vLLM counts it as 0).
    """
    kept = answers.finished
    if objectives.ttft_ms is not None:
        kept &= answers.ttft_ms <= objectives.ttft_ms
    if objectives.tpot_ms is not None:
        kept &= (answers.tpot_ms <= objectives.tpot_ms) | _no_tpot(answers)
    if objectives.e2el_ms is not None:
        kept &= answers.e2e_ms <= objectives.e2el_ms
    return kept


def goodput(answers: Answers, objectives: Objectives) -> Goodput:
    """Count what met the objectives; the fraction and the rate have the same numerator."""
    kept = met(answers, objectives)
    count = int(np.count_nonzero(kept))
    vacuous = 0 if objectives.tpot_ms is None else np.count_nonzero(kept & _no_tpot(answers))
    return Goodput(
        objectives=objectives,
        offered=len(answers),
        met=count,
        fraction=count / len(answers) if len(answers) else None,
        requests_per_s=per_second(count, window_ms(answers.arrival_ms, answers.finish_ms)),
        vacuous_tpot=int(vacuous),
    )


def _no_tpot(answers: Answers) -> NDArray[np.bool_]:
    return np.asarray(answers.output_tokens <= 1)


def _limit_ms(where: str, name: str, text: str) -> float:
    wanted = "a finite number of ms > 0"
    try:
        limit = float(text)
    except ValueError:
        raise wrong_value(where, name, text, wanted) from None
    if not 0.0 < limit < math.inf:
        raise wrong_value(where, name, limit, wanted)
    return limit
