"""Pointsman decides where LLM inference requests run over model replicas, and proves why.

The names below are the public API; each is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the same names, for type checkers
    from pointsman.comparison.policies import Comparison as Comparison
    from pointsman.comparison.policies import compare_policies as compare_policies
    from pointsman.core.errors import InputError as InputError
    from pointsman.core.errors import MachineError as MachineError
    from pointsman.core.errors import PointsmanError as PointsmanError
    from pointsman.costs.devices import device_named as device_named
    from pointsman.costs.iteration import IterationCosts as IterationCosts
    from pointsman.costs.models import model_named as model_named
    from pointsman.costs.roofline import Instance as Instance
    from pointsman.costs.stages import StageCosts as StageCosts
    from pointsman.fleet.engines import engine_of_instance as engine_of_instance
    from pointsman.lessons.distributed_inference import (
        estimate_request_cost as estimate_request_cost,
    )
    from pointsman.lessons.distributed_inference import (
        recommend_distributed_inference_run as recommend_distributed_inference_run,
    )
    from pointsman.lessons.distributed_inference import (
        simulate_distributed_inference as simulate_distributed_inference,
    )
    from pointsman.lessons.replica_routing import (
        compare_replica_strategies as compare_replica_strategies,
    )
    from pointsman.lessons.replica_routing import select_replica as select_replica
    from pointsman.lessons.replica_routing import (
        simulate_replica_routing as simulate_replica_routing,
    )
    from pointsman.lessons.replica_routing import (
        summarize_replica_service as summarize_replica_service,
    )
    from pointsman.metrics.goodput import Objectives as Objectives
    from pointsman.metrics.goodput import objectives_of as objectives_of
    from pointsman.metrics.latency import Answers as Answers
    from pointsman.metrics.service import ServiceMetrics as ServiceMetrics
    from pointsman.metrics.service import service_metrics as service_metrics
    from pointsman.metrics.serving import ServingMetrics as ServingMetrics
    from pointsman.metrics.serving import serving_metrics as serving_metrics
    from pointsman.policies.catalogue import POLICIES as POLICIES
    from pointsman.policies.catalogue import policy_named as policy_named
    from pointsman.policies.policy import Policy as Policy
    from pointsman.policies.policy import policy as policy
    from pointsman.sim.batching import BatchingFleet as BatchingFleet
    from pointsman.sim.batching import Engine as Engine
    from pointsman.sim.batching import FleetRun as FleetRun
    from pointsman.sim.batching import Split as Split
    from pointsman.sim.batching import simulate_fleet as simulate_fleet
    from pointsman.sim.conditions import Change as Change
    from pointsman.sim.conditions import ClosedLoop as ClosedLoop
    from pointsman.sim.conditions import Conditions as Conditions
    from pointsman.sim.conditions import Holding as Holding
    from pointsman.sim.fifo import FifoFleet as FifoFleet
    from pointsman.sim.fifo import Routed as Routed
    from pointsman.sim.fifo import simulate as simulate
    from pointsman.sim.knowledge import Signals as Signals
    from pointsman.sim.outcome import answers_of as answers_of
    from pointsman.sim.outcome import gaps_of as gaps_of
    from pointsman.sim.outcome import loads_of as loads_of
    from pointsman.workload.formats import read_workload as read_workload
    from pointsman.workload.generate import Traffic as Traffic
    from pointsman.workload.generate import generate as generate
    from pointsman.workload.reading import ReadOptions as ReadOptions
    from pointsman.workload.workload import Workload as Workload
    from pointsman.workload.workload import workload_of_columns as workload_of_columns
    from pointsman.workload.writer import write_workload as write_workload

    __version__: str

_HOMES = {
    # The functions of the two lessons: dicts in, dicts out.
    "select_replica": "pointsman.lessons.replica_routing",
    "simulate_replica_routing": "pointsman.lessons.replica_routing",
    "summarize_replica_service": "pointsman.lessons.replica_routing",
    "compare_replica_strategies": "pointsman.lessons.replica_routing",
    "estimate_request_cost": "pointsman.lessons.distributed_inference",
    "simulate_distributed_inference": "pointsman.lessons.distributed_inference",
    "recommend_distributed_inference_run": "pointsman.lessons.distributed_inference",
    # Columns in, columns out.
    "Workload": "pointsman.workload.workload",
    "workload_of_columns": "pointsman.workload.workload",
    "read_workload": "pointsman.workload.formats",
    "ReadOptions": "pointsman.workload.reading",
    "write_workload": "pointsman.workload.writer",
    "generate": "pointsman.workload.generate",
    "Traffic": "pointsman.workload.generate",
    "Policy": "pointsman.policies.policy",
    "policy": "pointsman.policies.policy",
    "POLICIES": "pointsman.policies.catalogue",
    "policy_named": "pointsman.policies.catalogue",
    "StageCosts": "pointsman.costs.stages",
    "FifoFleet": "pointsman.sim.fifo",
    "Routed": "pointsman.sim.fifo",
    "simulate": "pointsman.sim.fifo",
    "ServiceMetrics": "pointsman.metrics.service",
    "service_metrics": "pointsman.metrics.service",
    "compare_policies": "pointsman.comparison.policies",
    "Comparison": "pointsman.comparison.policies",
    # Replicas that batch.
    "BatchingFleet": "pointsman.sim.batching",
    "Engine": "pointsman.sim.batching",
    "FleetRun": "pointsman.sim.batching",
    "Split": "pointsman.sim.batching",
    "simulate_fleet": "pointsman.sim.batching",
    "Conditions": "pointsman.sim.conditions",
    "Holding": "pointsman.sim.conditions",
    "ClosedLoop": "pointsman.sim.conditions",
    "Change": "pointsman.sim.conditions",
    "Signals": "pointsman.sim.knowledge",
    "answers_of": "pointsman.sim.outcome",
    "loads_of": "pointsman.sim.outcome",
    "gaps_of": "pointsman.sim.outcome",
    "Answers": "pointsman.metrics.latency",
    "Objectives": "pointsman.metrics.goodput",
    "objectives_of": "pointsman.metrics.goodput",
    "ServingMetrics": "pointsman.metrics.serving",
    "serving_metrics": "pointsman.metrics.serving",
    "IterationCosts": "pointsman.costs.iteration",
    "Instance": "pointsman.costs.roofline",
    "model_named": "pointsman.costs.models",
    "device_named": "pointsman.costs.devices",
    "engine_of_instance": "pointsman.fleet.engines",
    # What goes wrong.
    "PointsmanError": "pointsman.core.errors",
    "InputError": "pointsman.core.errors",
    "MachineError": "pointsman.core.errors",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:  # or every misspelt name would be Any

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib.metadata import version

            return version("pointsman")
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'pointsman' has no attribute {name!r}")
        value = getattr(importlib.import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
