"""The requests of an experiment: of its trace, or drawn; and how they are offered."""

from __future__ import annotations

import hashlib
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from pointsman.bench.client.arrivals import ClosedLoop, Loop, OpenLoop
from pointsman.bench.experiment import CLOSED, Generated, WorkloadWanted
from pointsman.core.errors import InputError
from pointsman.workload.arrivals import Arrivals, PoissonArrivals, ReplayedArrivals
from pointsman.workload.distributions import Distribution, distribution_of_text
from pointsman.workload.formats import read_workload
from pointsman.workload.generate import Conversations, SystemPrompts, Traffic, generate
from pointsman.workload.reading import ReadOptions
from pointsman.workload.workload import Workload


def requests_of(wanted: WorkloadWanted, folder: Path) -> Workload:
    """The same requests whenever it is asked; a trace is looked for from ``folder``.

    Drawn for a closed loop they all arrive at 0: they are sent as answers end. No answer is longer
    than ``max_tokens``. Raises InputError for a trace that cannot be read as one, or whose requests
    have no tokens.
    """
    if wanted.trace is not None:
        options = ReadOptions(limit=wanted.limit)
        workload = read_workload(str(folder / wanted.trace), options)
    else:
        assert wanted.generate is not None  # one of the two is there
        workload = generate(_traffic(wanted.generate), wanted.seed)
    unknown = np.flatnonzero((workload.prompt_tokens < 1) | (workload.output_tokens < 0))
    if unknown.size:
        raise InputError(
            f"{workload.source.place(int(unknown[0]))}: has no tokens; expected prompt_tokens >= 1"
            " and output_tokens, for real requests are made of them"
        )
    if wanted.max_tokens is None:
        return workload
    return replace(workload, output_tokens=np.minimum(workload.output_tokens, wanted.max_tokens))


def loop_of(wanted: WorkloadWanted) -> Loop:
    """How they are offered."""
    if wanted.load == CLOSED:
        assert wanted.concurrency is not None  # checked when the file was read
        return ClosedLoop(wanted.concurrency, wanted.think_time_ms)
    return OpenLoop(wanted.concurrency)


def digest_of(workload: Workload) -> str:
    """SHA-256 of the columns: arrivals, lengths, sessions, prefixes; not of names or places."""
    digest = hashlib.sha256()
    for field in fields(Workload):
        column = getattr(workload, field.name)
        if isinstance(column, np.ndarray):
            digest.update(f"{field.name} {column.dtype.str} {len(column)}\n".encode())
            digest.update(np.ascontiguousarray(column).tobytes())
    digest.update(f"block_size_tokens {workload.block_size_tokens}\n".encode())
    return digest.hexdigest()


def _traffic(drawn: Generated) -> Traffic:
    turns, think = drawn.turns, drawn.think_time_ms
    prompts = drawn.system_prompt_tokens
    return Traffic(
        requests=drawn.requests,
        arrivals=_arrivals(drawn),
        prompt_tokens=_drawn_from(drawn.prompt_tokens),
        output_tokens=_drawn_from(drawn.output_tokens),
        conversations=Conversations(_drawn_from(turns), _drawn_from(think))
        if turns is not None and think is not None
        else None,
        system_prompts=SystemPrompts(_drawn_from(prompts), drawn.system_prompts)
        if prompts is not None
        else None,
    )


def _arrivals(drawn: Generated) -> Arrivals:
    if drawn.rate_rps is None:
        return ReplayedArrivals(np.zeros(drawn.requests))
    return PoissonArrivals(drawn.rate_rps)


def _drawn_from(text: str) -> Distribution:
    return distribution_of_text(text, "workload.generate")
