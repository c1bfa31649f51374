"""The traffic of ``pointsman policies bench``: generated kinds, and recorded traces.

Generated traffic has a rate near what the fleet it is for holds, and the more sessions the larger
the fleet: the time between turns hardly changes when arrivals are scaled to the load held.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import numpy as np

from pointsman.comparison.bench_fleets import BenchFleet
from pointsman.core.errors import InputError, unknown_name
from pointsman.workload.arrivals import PoissonArrivals
from pointsman.workload.distributions import (
    Distribution,
    Exponential,
    Geometric,
    Lognormal,
    Uniform,
)
from pointsman.workload.formats import read_workload
from pointsman.workload.generate import Conversations, SystemPrompts, Traffic, generate
from pointsman.workload.steps import arrival_step_ms, spread_arrivals
from pointsman.workload.workload import Workload

MINUTES = 12.0
QUICK_MINUTES = 3.0
NO_TRAFFIC = "none"


class Trace(Protocol):
    """What is offered to a fleet."""

    @property
    def name(self) -> str:
        """How it is called in tables."""
        ...

    def offered(self, fleet: BenchFleet, minutes: float, seed: int) -> Workload:
        """Requests for that fleet; a generated kind lasts so many minutes."""
        ...


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of generated traffic; ``rate_rps`` is for one fast replica."""

    what: str
    rate_rps: float
    prompt_tokens: Distribution
    output_tokens: Distribution
    block_size_tokens: int = 128
    max_prompt_tokens: int = 60_000
    conversations: Conversations | None = None
    system_prompts: SystemPrompts | None = None


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "system": Kind(
            "one turn behind one of 500 system prompts, chosen by Zipf",
            rate_rps=8.0,
            prompt_tokens=Lognormal(0.8, median=250.0, min=16.0, max=4000.0),
            output_tokens=Lognormal(0.8, median=300.0, min=2.0, max=4000.0),
            system_prompts=SystemPrompts(Uniform(1024.0, 8192.0), count=500),
        ),
        "turns": Kind(
            "conversations of ten turns, more of them than the caches hold",
            rate_rps=3.5,
            prompt_tokens=Lognormal(1.0, median=600.0, min=16.0, max=6000.0),
            output_tokens=Lognormal(0.7, median=300.0, min=2.0, max=2000.0),
            conversations=Conversations(Geometric(10.0), Exponential(30_000.0)),
        ),
        "unshared": Kind(
            "lognormal lengths, nothing shared",
            rate_rps=7.0,
            prompt_tokens=Lognormal(1.0, median=1100.0, min=16.0, max=30_000.0),
            output_tokens=Lognormal(0.8, median=200.0, min=2.0, max=4000.0),
        ),
        "long": Kind(
            "long prompts in few turns behind long shared prefixes",
            rate_rps=1.0,
            prompt_tokens=Lognormal(1.2, median=3000.0, min=16.0, max=60_000.0),
            output_tokens=Lognormal(0.6, median=300.0, min=2.0, max=2000.0),
            block_size_tokens=512,
            max_prompt_tokens=120_000,
            conversations=Conversations(Geometric(2.0), Exponential(60_000.0)),
            system_prompts=SystemPrompts(
                Lognormal(0.8, median=4000.0, min=512.0, max=30_000.0), count=400, zipf_exponent=0.8
            ),
        ),
    }
)
# A kind with few requests a second lasts longer, for 5 % of them must be enough to count.
LEAST_REQUESTS_OF_REPLICA = 1500


@dataclass(frozen=True, slots=True)
class GeneratedTrace:
    """One of ``KINDS``."""

    name: str

    def offered(self, fleet: BenchFleet, minutes: float, seed: int) -> Workload:
        """Drawn for the size of the fleet; same fleet and seed, same bytes."""
        kind = KINDS[self.name]
        least = LEAST_REQUESTS_OF_REPLICA * minutes / MINUTES
        of_replica = max(kind.rate_rps * 60.0 * minutes, least)
        traffic = Traffic(
            requests=math.ceil(of_replica * fleet.size),
            arrivals=PoissonArrivals(kind.rate_rps * fleet.size),
            prompt_tokens=kind.prompt_tokens,
            output_tokens=kind.output_tokens,
            conversations=kind.conversations,
            system_prompts=kind.system_prompts,
            block_size_tokens=kind.block_size_tokens,
            max_prompt_tokens=kind.max_prompt_tokens,
        )
        return generate(traffic, seed)


@dataclass(frozen=True, slots=True, eq=False)
class RecordedTrace:
    """A trace from a file, the same for every fleet; arrivals recorded in steps are spread inside
    them."""

    name: str
    workload: Workload

    def offered(self, fleet: BenchFleet, minutes: float, seed: int) -> Workload:
        """The trace as it is, or spread."""
        if arrival_step_ms(self.workload.arrival_ms) is None:
            return self.workload
        return spread_arrivals(self.workload, seed)


def recorded_trace(path: str) -> RecordedTrace:
    """The trace in a file, of whatever format, called as the file without its endings.

    Raises InputError where it is none, or has rows without prompt or answer.
    """
    workload = read_workload(path)
    lacking = np.flatnonzero((workload.prompt_tokens < 1) | (workload.output_tokens < 1))
    if lacking.size:
        row = int(lacking[0])
        raise InputError(
            f"{path}: request {workload.names.request(row)} has {workload.prompt_tokens[row]}"
            f" prompt tokens and {workload.output_tokens[row]} output tokens; expected at least 1"
            " of each to batch"
        )
    return RecordedTrace(Path(path).name.partition(".")[0], workload)


def traffic_named(text: str) -> list[GeneratedTrace]:
    """Generated kinds with commas between them; ``none`` for none.

    Raises InputError for an unknown kind.
    """
    if text == NO_TRAFFIC:
        return []
    names = dict.fromkeys(word.strip() for word in text.split(","))
    for name in names:
        if name not in KINDS:
            raise unknown_name("--traffic", "kind", name, (*KINDS, NO_TRAFFIC))
    return [GeneratedTrace(name) for name in names]
