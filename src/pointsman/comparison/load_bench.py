"""Every policy's held load on every cell, a cell being one trace on one fleet."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace

import numpy as np

from pointsman.comparison.bench_fleets import BenchFleet
from pointsman.comparison.bench_traffic import MINUTES, QUICK_MINUTES, Trace
from pointsman.comparison.held_load import (
    TOLERANCE_RATIO,
    AtLoad,
    Cell,
    HeldLoad,
    Target,
    at_load,
    held_load,
)
from pointsman.core.errors import InputError, MachineError, wrong_value
from pointsman.fleet.objectives import with_objectives
from pointsman.metrics.goodput import Objectives
from pointsman.policies.catalogue import policy_named
from pointsman.policies.policy import Policy
from pointsman.sim.conditions import Holding
from pointsman.workload.repeat import repeated

# The rule that is held against the best of the others' rules, and the one that its tail is held
# against: goodput alone can be had by letting some requests wait for ever.
SUBJECT = "fewest_misses"
TAIL_REFERENCE = "earliest_first_token"

# A load held for a shorter time is not yet held: queues that grow slowly go unseen.
LEAST_MINUTES = 10.0
QUICK_LEAST_MINUTES = 2.0
QUICK_TOLERANCE_RATIO = 1.05
PILOT_TOLERANCE_RATIO = 1.1
MOST_REQUESTS = 400_000  # of a trace that is repeated to last

_MS_PER_MINUTE = 60_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is asked of every cell.

    ``policies`` as a user names them; ``holding`` is tried with ``SUBJECT`` alone. Generated
    traffic lasts ``minutes`` at its own rate; a trace that would last less than ``least_minutes``
    at the load held is repeated. Raises InputError for no policy, and for one named twice.
    """

    policies: tuple[str, ...]
    target: Target
    holding: Holding | None = None
    minutes: float = MINUTES
    least_minutes: float = LEAST_MINUTES
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.policies:
            raise InputError("policies bench: no policy; expected at least one")
        for text in self.policies:
            if self.policies.count(text) > 1:
                raise wrong_value("policies bench", "policy", text, "each policy once")

    @property
    def objectives(self) -> Objectives:
        """What a request must keep."""
        return self.target.objectives


def asked_for(
    policies: Sequence[str], objectives: Objectives, holding: Holding | None, quick: bool
) -> Asked:
    """In full, or quick: a quarter of the traffic, loads told apart to 5 %."""
    if not quick:
        target = Target(objectives, tolerance_ratio=TOLERANCE_RATIO)
        return Asked(policies=tuple(policies), target=target, holding=holding)
    return Asked(
        policies=tuple(policies),
        target=Target(objectives, tolerance_ratio=QUICK_TOLERANCE_RATIO),
        holding=holding,
        minutes=QUICK_MINUTES,
        least_minutes=QUICK_LEAST_MINUTES,
    )


@dataclass(frozen=True, slots=True)
class CellResult:
    """The load that each policy holds in one cell, in the order asked.

    ``rounds``: how many times over the trace was played. ``with_holding``: ``SUBJECT`` with
    requests held in the router. ``tail``: ``SUBJECT`` at the load that ``TAIL_REFERENCE`` holds.
    Both are None where they were not asked, or could not be had.
    """

    trace: str
    fleet: BenchFleet
    requests: int
    rounds: int
    rate_rps: float  # of the trace itself, a load of 1
    held: dict[str, HeldLoad]
    with_holding: HeldLoad | None
    tail: AtLoad | None
    pilot: HeldLoad

    @property
    def searches(self) -> list[HeldLoad]:
        """All bisections that were run."""
        extra = [] if self.with_holding is None else [self.with_holding]
        return [self.pilot, *self.held.values(), *extra]

    @property
    def least_minutes(self) -> float | None:
        """How long the shortest of the runs at a load held lasts."""
        lasting = [held.at.simulated_ms for held in self.held.values() if held.at is not None]
        return min(lasting) / _MS_PER_MINUTE if lasting else None


def policies_of(asked: Asked) -> dict[str, Policy]:
    """The policies by the text that names them; they are told the objectives."""
    named = [policy_named(text) for text in asked.policies]
    told = with_objectives(asked.policies, named, asked.objectives)
    return dict(zip(asked.policies, told, strict=True))


def bench(
    traces: Sequence[Trace], fleets: Sequence[BenchFleet], asked: Asked, jobs: int = 1
) -> Iterator[CellResult]:
    """The results of all cells, traces within fleets, as they are done; ``jobs`` at a time.

    Raises InputError as ``held_load`` does.
    """
    policies_of(asked)  # what is wrong with them is said before anything runs
    cells = [(trace, fleet) for fleet in fleets for trace in traces]
    if jobs == 1:
        yield from (bench_cell(trace, fleet, asked) for trace, fleet in cells)
        return
    yield from _in_processes(cells, asked, jobs)


def _in_processes(
    cells: Sequence[tuple[Trace, BenchFleet]], asked: Asked, jobs: int
) -> Iterator[CellResult]:
    import joblib

    # Large columns would be mapped from a file, as arrays that compiled code does not take.
    parallel = joblib.Parallel(n_jobs=jobs, batch_size=1, return_as="generator", max_nbytes=None)
    results = parallel(joblib.delayed(bench_cell)(*cell, asked) for cell in cells)
    try:
        yield from results
    except BrokenProcessPool:
        raise MachineError(
            "policies bench: a process that simulated was ended, by somebody or for want of memory;"
            " run it again with --jobs 1"
        ) from None
    finally:
        with warnings.catch_warnings(action="ignore"):  # an interruption leaves cells undone
            results.close()


def bench_cell(trace: Trace, fleet: BenchFleet, asked: Asked) -> CellResult:
    """Every policy on one trace and fleet; each search begins at what ``SUBJECT`` roughly holds."""
    offered = trace.offered(fleet, asked.minutes, asked.seed)
    engines = fleet.assembled(offered.block_size_tokens)
    cell = Cell(offered, engines, fleet.conditions, asked.seed)
    pilot = _pilot(cell, asked)
    guess = pilot.load_ratio or 1.0
    rounds = _rounds(cell, guess, asked.least_minutes)
    cell = replace(cell, workload=repeated(offered, rounds))
    policies = policies_of(asked)
    held = {text: held_load(cell, policy, asked.target, guess) for text, policy in policies.items()}
    return CellResult(
        trace=trace.name,
        fleet=fleet,
        requests=len(cell.workload),
        rounds=rounds,
        rate_rps=len(offered) * 1000.0 / offered.span_ms if offered.span_ms else 0.0,
        held=held,
        with_holding=_with_holding(cell, asked, held.get(SUBJECT)),
        tail=_tail(cell, policies, held, asked.objectives),
        pilot=pilot,
    )


def _subject(asked: Asked) -> Policy:
    (told,) = with_objectives([SUBJECT], [policy_named(SUBJECT)], asked.objectives)
    return told


def _pilot(cell: Cell, asked: Asked) -> HeldLoad:
    """Roughly what can be held, to see how long the trace would last."""
    coarse = replace(asked.target, tolerance_ratio=PILOT_TOLERANCE_RATIO)
    return held_load(cell, _subject(asked), coarse, _without_hits(cell))


def _without_hits(cell: Cell) -> float:
    """The load at which computing every prompt, and nothing else, keeps all replicas busy."""
    prompts = float(cell.workload.prompt_tokens.sum(dtype=np.float64))
    tokens_per_ms = sum(1.0 / engine.costs.per_prefill_token_ms for engine in cell.fleet.engines)
    busy_ms = prompts / tokens_per_ms
    span_ms = cell.workload.span_ms
    return span_ms / busy_ms if span_ms > 0.0 and busy_ms > 0.0 else 1.0


def _rounds(cell: Cell, load_ratio: float, least_minutes: float) -> int:
    workload = cell.workload
    wanted_ms = least_minutes * _MS_PER_MINUTE * PILOT_TOLERANCE_RATIO * load_ratio
    most = max(1, MOST_REQUESTS // len(workload))
    return min(most, max(1, math.ceil(wanted_ms / max(1.0, workload.span_ms))))


def _with_holding(cell: Cell, asked: Asked, without: HeldLoad | None) -> HeldLoad | None:
    if asked.holding is None or without is None:
        return None
    held_back = replace(cell, conditions=replace(cell.conditions, holding=asked.holding))
    return held_load(held_back, _subject(asked), asked.target, without.load_ratio or 1.0)


def _tail(
    cell: Cell, policies: dict[str, Policy], held: dict[str, HeldLoad], objectives: Objectives
) -> AtLoad | None:
    reference = held.get(TAIL_REFERENCE)
    if SUBJECT not in policies or reference is None or reference.at is None:
        return None
    return at_load(cell, policies[SUBJECT], objectives, reference.load_ratio)
