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
    from pointsman.costs.stages import StageCosts as StageCosts
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
    from pointsman.metrics.service import ServiceMetrics as ServiceMetrics
    from pointsman.metrics.service import service_metrics as service_metrics
    from pointsman.policies.catalogue import POLICIES as POLICIES
    from pointsman.policies.catalogue import policy_named as policy_named
    from pointsman.policies.policy import Policy as Policy
    from pointsman.policies.policy import policy as policy
    from pointsman.sim.fifo import FifoFleet as FifoFleet
    from pointsman.sim.fifo import Routed as Routed
    from pointsman.sim.fifo import simulate as simulate
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
