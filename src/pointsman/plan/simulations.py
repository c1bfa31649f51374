"""The runs of one shape: at another rate, with other service times, with other seeds; counted."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from pointsman.costs.iteration import IterationCosts
from pointsman.plan.hardware import Deployment
from pointsman.plan.measure import Columns, ShapeMetrics, measured
from pointsman.plan.question import Question
from pointsman.policies.policy import Policy
from pointsman.sim.batching import BatchingFleet, simulate_fleet
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
        fleet = slowed(self.deployment.fleet, setting.slowness)
        seed = self.question.seed + setting.replication
        run = simulate_fleet(workload, policy, fleet, seed=seed)
        return measured(run, self.deployment, self.question.objectives)

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


def slowed(fleet: BatchingFleet, factor: float) -> BatchingFleet:
    """The same fleet whose iterations take ``factor`` times as long."""
    if factor == 1.0:
        return fleet
    engines = tuple(replace(engine, costs=_times(engine.costs, factor)) for engine in fleet.engines)
    return replace(fleet, engines=engines)


def _times(costs: IterationCosts, factor: float) -> IterationCosts:
    values = {name: value * factor for name, value in msgspec.to_builtins(costs).items()}
    return IterationCosts(**values)
