"""Pointsman decides where LLM inference requests run over model replicas, and proves why.

The names below are the public API; each is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import Any

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
    # What goes wrong.
    "PointsmanError": "pointsman.core.errors",
    "InputError": "pointsman.core.errors",
    "MachineError": "pointsman.core.errors",
}

__all__ = list(_HOMES)


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
