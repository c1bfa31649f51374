"""The whole plan: shapes, baseline, candidates, ranking, front."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from pointsman.core.errors import InputError
from pointsman.costs.iteration import IterationCosts
from pointsman.plan.candidate import Setup, ShapeResult, baseline_of
from pointsman.plan.hardware import Dropped, Hardware
from pointsman.plan.parallel import Workers, candidates
from pointsman.plan.question import Question, check_workloads
from pointsman.plan.ranking import pareto_front, ranked
from pointsman.plan.results_file import ResultsFile, key_of, setup_digest
from pointsman.plan.shapes import KINDS, Shape, shape_named
from pointsman.plan.validity import Refused, check_lengths, refused_rate, refused_run
from pointsman.sim.batching import BatchingFleet, Engine, simulate_fleet
from pointsman.workload.workload import Workload, workload_of_columns

_ANY_ENGINE = Engine(IterationCosts(1.0, 0.0, 0.0, 0.0), kv_blocks=8)


@dataclass(frozen=True, slots=True)
class How:
    """Which kinds of shapes, against which one, over which processes, kept in which file.

    ``on_start`` gets the number of shapes, ``on_shape`` the label of each one that is done.
    """

    kinds: tuple[str, ...] = KINDS
    baseline: str | None = None  # None: one replica on the fewest GPUs that hold the model
    workers: Workers = field(default_factory=Workers)
    resume: Path | None = None
    on_start: Callable[[int], None] = lambda _: None
    on_shape: Callable[[str], None] = lambda _: None


@dataclass(frozen=True, slots=True)
class Plan:
    """``results``: all shapes, the best first, the baseline among them; ``resumed`` of them came
    from the file, and ``simulations`` counts the others' alone."""

    workloads: tuple[Workload, ...]
    hardware: Hardware
    question: Question
    baseline: ShapeResult
    results: tuple[ShapeResult, ...]
    pareto: tuple[ShapeResult, ...]
    dropped: tuple[Dropped, ...]
    refused: tuple[Refused, ...]
    simulations: int
    resumed: int

    @property
    def offered_rps(self) -> float:
        """The rate of the first workload: its gaps over its span."""
        workload = self.workloads[0]
        return (len(workload) - 1) * 1000.0 / workload.span_ms

    @property
    def block_size(self) -> int:
        """Of the caches."""
        return _block_size(self.hardware)


def make_plan(
    workloads: tuple[Workload, ...], hardware: Hardware, question: Question, how: How | None = None
) -> Plan:
    """Plan for a recorded workload, or for several replications of a generated one.

    The first workload is what shapes and policies are searched with; further ones are compared at
    the offered rate. Raises InputError, before anything runs, for what cannot be planned.
    """
    how = how or How()
    check_workloads(workloads, _block_size(hardware))
    check_lengths(hardware, workloads)
    fitting, dropped = hardware.shapes(how.kinds)
    first = hardware.smallest() if how.baseline is None else shape_named(how.baseline)
    hardware.deploy(first)
    _check_baseline(first, refused_rate(hardware, first, workloads[0]))
    refused = {shape: refused_rate(hardware, shape, workloads[0]) for shape in fitting}
    shapes = [shape for shape in fitting if refused[shape] is None and shape != first]
    runs = _Runs(Setup(workloads, hardware, question), first, how)
    results = runs.all(shapes)
    late = {each.shape: refused_run(hardware, each.shape, each.metrics) for each in results}
    kept = [each for each in results if late[each.shape] is None]
    return Plan(
        workloads=workloads,
        hardware=hardware,
        question=question,
        baseline=results[0],
        results=tuple(ranked(kept, question)),
        pareto=tuple(pareto_front(kept)),
        dropped=tuple(dropped),
        refused=tuple(why for why in (*refused.values(), *late.values()) if why is not None),
        simulations=runs.simulations,
        resumed=runs.resumed,
    )


class _Runs:
    """Runs what the file does not have, and counts."""

    def __init__(self, setup: Setup, first: Shape, how: How) -> None:
        self._setup, self._first, self._how = setup, first, how
        self._file = None if how.resume is None else ResultsFile(how.resume)
        self._digest = "" if self._file is None else setup_digest(setup, first)
        self.simulations = 0
        self.resumed = 0

    def all(self, shapes: list[Shape]) -> list[ShapeResult]:
        """The results, the baseline first and the others in their order."""
        kept = {shape: result for shape in (self._first, *shapes) if (result := self._kept(shape))}
        left = [shape for shape in shapes if shape not in kept]
        self.resumed = len(kept)
        self._how.on_start(1 + len(left))
        if left or self._first not in kept:
            for result in self._fresh(left):
                kept[result.shape] = result
        return [kept[shape] for shape in (self._first, *shapes)]

    def _fresh(self, left: list[Shape]) -> Iterator[ShapeResult]:
        """The baseline, which candidates need even where its result is known, then the others."""
        self._how.on_shape(self._first.label)
        _compile(self._setup.question)
        baseline = baseline_of(self._setup, self._first)
        hardware = self._setup.hardware
        _check_baseline(self._first, refused_run(hardware, self._first, baseline.result.metrics))
        yield self._done(baseline.result)
        setup = replace(self._setup, baseline=baseline)
        for result in candidates(setup, left, self._how.workers):
            self._how.on_shape(result.shape.label)
            yield self._done(result)

    def _done(self, result: ShapeResult) -> ShapeResult:
        self.simulations += result.simulations
        if self._file is not None and self._kept(result.shape) is None:
            self._file.add(key_of(self._digest, result.shape), result)
        return result

    def _kept(self, shape: Shape) -> ShapeResult | None:
        return None if self._file is None else self._file.get(key_of(self._digest, shape))


def _check_baseline(shape: Shape, why: Refused | None) -> None:
    if why is not None:
        raise InputError(
            f"plan: the baseline {shape.label} is outside the calibrated range: {why.reason};"
            " expected --baseline with more replicas"
        )


def _compile(question: Question) -> None:
    """Compile once, here, what all processes then find in the cache."""
    two = workload_of_columns([0.0, 1.0], prompt_tokens=[1, 1], output_tokens=[1, 1])
    fleet = BatchingFleet.of(_ANY_ENGINE, 2)
    for policy in question.policy_objects():
        simulate_fleet(two, policy, fleet)


def _block_size(hardware: Hardware) -> int:
    if hardware.calibrated is None:
        return hardware.block_size
    return hardware.calibrated.engine.block_size
