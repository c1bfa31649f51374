"""Mechanism runs as tests need them: the lesson's units on two ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from pointsman.evidence.envelope import SCHEMA, MechanismRun
from pointsman.evidence.mechanism_run import (
    MechanismMetrics,
    MechanismRepeat,
    MechanismWorkload,
    StrategyRow,
)
from tests.evidence.groups import HARDWARE

COSTS = (1.0, 8.0, 2.0, 7.0, 1.0, 6.0, 2.0, 5.0)
UNITS = {"round_robin": (6.0, 26.0), "least_loaded": (17.0, 15.0)}
SLOWEST = {"round_robin": (26.0, 26.1, 25.9), "least_loaded": (17.0, 17.2, 16.8)}


def mechanism(slowest: dict[str, Sequence[float]] = SLOWEST, **changes: Any) -> MechanismRun:
    """A run with such times of the slowest rank, a value a repeat."""
    made = MechanismRun(
        schema=SCHEMA,
        project="pointsman",
        label="run-1",
        environment_profile="PAR-CPU-MECHANISM",
        workload=MechanismWorkload(
            id="par-replica-load-routing",
            mode="replica_routing",
            request_cost_units=COSTS,
            compute_dim=768,
            dtype="bfloat16",
            world_size=2,
            warmup=2,
            repeats=len(slowest["round_robin"]),
        ),
        hardware=HARDWARE,
        metrics=MechanismMetrics(rows=tuple(_row(name, slowest[name]) for name in slowest)),
        versions={"torch": "2.13.0"},
        evidence_level="mechanism_cpu",
        failure=None,
        decision=None,
    )
    return msgspec.structs.replace(made, **changes)


def _row(strategy: str, slowest: Sequence[float]) -> StrategyRow:
    mean = sum(slowest) / len(slowest)
    return StrategyRow(
        strategy=strategy,
        request_cost_units_per_rank=UNITS[strategy],
        rank_elapsed_ms=(mean / 2, mean),
        max_rank_makespan_ms=mean,
        throughput_requests_per_s_proxy=8000.0 / mean,
        repeats=tuple(
            MechanismRepeat(rank_elapsed_ms=(each / 2, each), max_rank_makespan_ms=each)
            for each in slowest
        ),
    )
