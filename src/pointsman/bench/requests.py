"""The requests of an experiment: of its trace, or drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pointsman.bench.experiment import Generated, WorkloadWanted
from pointsman.workload.arrivals import Arrivals, PoissonArrivals, ReplayedArrivals
from pointsman.workload.distributions import Distribution, distribution_of_text
from pointsman.workload.formats import read_workload
from pointsman.workload.generate import Conversations, SystemPrompts, Traffic, generate
from pointsman.workload.reading import ReadOptions
from pointsman.workload.workload import Workload


def requests_of(wanted: WorkloadWanted, folder: Path) -> Workload:
    """The same requests whenever it is asked; a trace is looked for from ``folder``.

    Drawn for a closed loop they all arrive at 0: they are sent as answers end. Raises InputError
    for a trace that cannot be read as one.
    """
    if wanted.trace is not None:
        options = ReadOptions(limit=wanted.limit)
        return read_workload(str(folder / wanted.trace), options)
    assert wanted.generate is not None  # one of the two is there
    return generate(_traffic(wanted.generate), wanted.seed)


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
