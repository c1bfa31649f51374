"""A candidate from first to last: searched, compared with the baseline, judged."""

from __future__ import annotations

from dataclasses import dataclass, field

from pointsman.plan.difference import Difference, difference_of
from pointsman.plan.hardware import Deployment, Hardware
from pointsman.plan.judgement import Evidence, Judgement, Pair, judge
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
    """What candidates are held against; ``perturbed`` by slowness."""

    result: ShapeResult
    columns: tuple[Columns, ...]  # a replication each
    perturbed: dict[float, ShapeMetrics] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Setup:
    """What all candidates share."""

    workloads: tuple[Workload, ...]
    hardware: Hardware
    question: Question
    baseline: Baseline | None = None


def baseline_of(setup: Setup, shape: Shape) -> Baseline:
    """Search the baseline, and run it in the other worlds of its candidates."""
    simulations, found = _searched(setup, setup.hardware.deploy(shape))
    error = setup.question.model_error_fraction
    perturbed = {
        slowness: simulations.run(found.policy, Setting(slowness=slowness))[0]
        for slowness in ((1.0 + error, 1.0 / (1.0 + error)) if error else ())
    }
    columns = _all_columns(simulations, found)
    return Baseline(_result(shape, found, simulations.count), columns, perturbed)


def candidate_of(setup: Setup, shape: Shape) -> ShapeResult:
    """Search a shape and judge it against the setup's baseline."""
    baseline, question = setup.baseline, setup.question
    assert baseline is not None
    simulations, found = _searched(setup, setup.hardware.deploy(shape))

    def perturbed(slowness: float) -> Pair:
        metrics, _ = simulations.run(found.policy, Setting(slowness=slowness))
        return Pair(baseline.perturbed[slowness], metrics)

    difference = difference_of(_all_columns(simulations, found), baseline.columns, question)
    evidence = Evidence(
        nominal=Pair(baseline.result.metrics, found.metrics),
        limit=found.limit,
        difference=difference,
        perturbed=perturbed,
    )
    judgement = judge(evidence, question)
    return _result(shape, found, simulations.count, difference, judgement)


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
    difference: Difference | None = None,
    judgement: Judgement | None = None,
) -> ShapeResult:
    return ShapeResult(
        shape=shape,
        policy=found.policy.label,
        metrics=found.metrics,
        limit=found.limit,
        at_limit=found.at_limit,
        tried=found.tried,
        simulations=count,
        difference=difference,
        judgement=judgement,
    )
