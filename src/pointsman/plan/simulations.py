"""The runs of one shape: at another rate, with other service times, with other seeds; counted."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from pointsman.costs.iteration import IterationCosts
from pointsman.plan.hardware import Deployment
from pointsman.plan.measure import Columns, ShapeMetrics, measured
from pointsman.plan.question import Question
from pointsman.policies.policy import Policy
from pointsman.sim.batching import simulate_fleet
from pointsman.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Setting:
    """``rate`` and ``slowness`` multiply arrivals a second and service times; which workload."""

    rate: float = 1.0
    slowness: float = 1.0
    replication: int = 0


AS_OFFERED = Setting()


class Simulations:
    """Runs one shape; ``count`` says how often. All shapes get the same requests and draws."""

    def __init__(
        self, workloads: tuple[Workload, ...], deployment: Deployment, question: Question
    ) -> None:
        self.workloads = workloads
        self.deployment = deployment
        self.question = question
        self.count = 0

    def run(self, policy: Policy, setting: Setting = AS_OFFERED) -> tuple[ShapeMetrics, Columns]:
        """Simulate and measure."""
        self.count += 1
        workload = at_rate(self.workloads[setting.replication], setting.rate)
        deployment = slowed(self.deployment, setting.slowness)
        seed = self.question.seed + setting.replication
        run = simulate_fleet(workload, policy, deployment.fleet, seed=seed)
        return measured(run, deployment, self.question.objectives)

    def holds(self, metrics: ShapeMetrics) -> bool:
        """Whether enough of all offered requests met the objectives."""
        return goodput_fraction(metrics) >= self.question.attainment


def goodput_fraction(metrics: ShapeMetrics) -> float:
    """Of all offered requests, those that met the objectives."""
    goodput = metrics.serving.goodput
    return 0.0 if goodput is None or goodput.fraction is None else goodput.fraction


def at_rate(workload: Workload, factor: float) -> Workload:
    """The same requests, ``factor`` times as many a second."""
    if factor == 1.0:
        return workload
    return replace(workload, arrival_ms=workload.arrival_ms / factor)


def slowed(deployment: Deployment, factor: float) -> Deployment:
    """The same shape whose iterations, communication included, take ``factor`` times as long."""
    if factor == 1.0:
        return deployment
    fleet = deployment.fleet
    engines = tuple(replace(each, costs=_times(each.costs, factor)) for each in fleet.engines)
    return replace(
        deployment,
        fleet=replace(fleet, engines=engines),
        communication=_times(deployment.communication, factor),
    )


def _times(costs: IterationCosts, factor: float) -> IterationCosts:
    values = {name: value * factor for name, value in msgspec.to_builtins(costs).items()}
    return IterationCosts(**values)
