"""A candidate from first to last: searched, compared with the baseline, judged."""

from __future__ import annotations

from dataclasses import dataclass, field

from pointsman.plan.difference import Difference, difference_of
from pointsman.plan.hardware import Deployment, Hardware
from pointsman.plan.judgement import Evidence, Judgement, Pair, judge, other_worlds
from pointsman.plan.measure import Columns, ShapeMetrics
from pointsman.plan.question import Question
from pointsman.plan.rate import MOST_FACTOR, RateLimit
from pointsman.plan.search import Found, PolicyFigures, search
from pointsman.plan.shapes import Shape
from pointsman.plan.simulations import Setting, Simulations
from pointsman.plan.validity import most_rate_of
from pointsman.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class ShapeResult:
    """What a shape does at the offered rate with its best policy; ``at_limit``: at the highest
    rate that keeps the objectives.

    ``difference`` and ``judgement`` are None for the baseline itself.
    """

    shape: Shape
    policy: str
    metrics: ShapeMetrics
    limit: RateLimit
    at_limit: ShapeMetrics | None
    tried: tuple[PolicyFigures, ...]
    simulations: int
    difference: Difference | None = None
    judgement: Judgement | None = None


@dataclass(frozen=True, eq=False)
class Baseline:
    """What candidates are held against."""

    result: ShapeResult
    columns: tuple[Columns, ...]  # a replication each
    perturbed: dict[float, ShapeMetrics] = field(default_factory=dict)  # by slowness


@dataclass(frozen=True, eq=False)
class Setup:
    """What all candidates share."""

    workloads: tuple[Workload, ...]
    hardware: Hardware
    question: Question
    baseline: Baseline | None = None


def baseline_of(setup: Setup, shape: Shape) -> Baseline:
    """Search the baseline, and run it in the two other worlds that every candidate may ask for."""
    simulations, found = _searched(setup, setup.hardware.deploy(shape))
    perturbed = {
        slowness: simulations.run(found.policy, Setting(slowness=slowness))[0]
        for slowness in other_worlds(setup.question.model_error_fraction)
    }
    columns = _all_columns(simulations, found)
    return Baseline(_result(shape, found, simulations.count), columns, perturbed)


def candidate_of(setup: Setup, shape: Shape) -> ShapeResult:
    """Search a shape and judge it against the setup's baseline."""
    baseline, question = setup.baseline, setup.question
    assert baseline is not None
    simulations, found = _searched(setup, setup.hardware.deploy(shape))
    worlds = _Worlds(setup, baseline, simulations, found)
    evidence = Evidence(
        nominal=Pair(baseline.result.metrics, found.metrics),
        limit=found.limit,
        difference=difference_of(_all_columns(simulations, found), baseline.columns, question),
        perturbed=worlds.pair,
        unfilled=worlds.unfilled if shape.pp > 1 else None,
    )
    judgement = judge(evidence, question)
    count = simulations.count + worlds.further_runs
    return _result(shape, found, count, (evidence.difference, judgement))


class _Worlds:
    """Baseline and candidate with other service times; each world is run once."""

    def __init__(
        self, setup: Setup, baseline: Baseline, simulations: Simulations, found: Found
    ) -> None:
        self._setup, self._nominal = setup, baseline.result.metrics
        self._candidate = (simulations, found.policy)
        deployment = setup.hardware.deploy(baseline.result.shape)
        self._baseline = Simulations(setup.workloads, deployment, setup.question)
        self._baseline_policy = setup.question.policy_labelled(baseline.result.policy)
        self._known = baseline.perturbed
        self._pairs: dict[float, Pair] = {}
        self._unfilled_runs = 0

    @property
    def further_runs(self) -> int:
        """Runs beside those of the candidate as it is."""
        return self._baseline.count + self._unfilled_runs

    def unfilled(self) -> Pair:
        """The candidate with one micro-batch in its pipelines, against the baseline as it is."""
        simulations, policy = self._candidate
        deployment = self._setup.hardware.deploy(simulations.deployment.shape, micro_batches=1)
        one = Simulations(self._setup.workloads, deployment, self._setup.question)
        self._unfilled_runs += 1
        return Pair(self._nominal, one.run(policy)[0])

    def pair(self, slowness: float) -> Pair:
        """Both, where every service takes so many times as long."""
        if slowness not in self._pairs:
            setting = Setting(slowness=slowness)
            ours = self._known.get(slowness)
            if ours is None:
                ours, _ = self._baseline.run(self._baseline_policy, setting)
            simulations, policy = self._candidate
            self._pairs[slowness] = Pair(ours, simulations.run(policy, setting)[0])
        return self._pairs[slowness]


def _searched(setup: Setup, deployment: Deployment) -> tuple[Simulations, Found]:
    simulations = Simulations(setup.workloads, deployment, setup.question)
    most = min(
        MOST_FACTOR, most_rate_of(setup.hardware, deployment.shape.replicas, setup.workloads[0])
    )
    return simulations, search(simulations, most)


def _all_columns(simulations: Simulations, found: Found) -> tuple[Columns, ...]:
    further = range(1, len(simulations.workloads))
    return (
        found.columns,
        *(simulations.run(found.policy, Setting(replication=k))[1] for k in further),
    )


def _result(
    shape: Shape,
    found: Found,
    count: int,
    judged: tuple[Difference, Judgement] | None = None,
) -> ShapeResult:
    return ShapeResult(
        shape=shape,
        policy=found.policy.label,
        metrics=found.metrics,
        limit=found.limit,
        at_limit=found.at_limit,
        tried=found.tried,
        simulations=count,
        difference=None if judged is None else judged[0],
        judgement=None if judged is None else judged[1],
    )
