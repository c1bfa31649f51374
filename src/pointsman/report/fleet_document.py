"""A comparison on a fleet that batches as a JSON document."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import msgspec

from pointsman.comparison.differences import Difference
from pointsman.comparison.fleet_advice import advise_on_fleet
from pointsman.comparison.fleets import FleetComparison, FleetResult
from pointsman.core.percentiles import PERCENTILE_METHOD
from pointsman.costs.roofline import Instance
from pointsman.fleet.groups import Group
from pointsman.metrics.distribution import QUANTILE_LEVELS
from pointsman.report.document import (
    head,
    over_time_document,
    policy_document,
    workload_document,
)
from pointsman.report.locality_audit import audit_document
from pointsman.sim.batching_state import ENGINE_MODEL
from pointsman.workload.reading import ReadOptions

FLEET_SCHEMA = "pointsman.fleet-comparison/1"


def fleet_comparison_document(comparison: FleetComparison, reading: ReadOptions) -> dict[str, Any]:
    """Schema, workload, fleet, what surrounds it, results (the best first), warnings, advice."""
    objectives = comparison.trial.objectives
    return {
        **head(FLEET_SCHEMA),
        "percentile_method": PERCENTILE_METHOD,
        "quantile_levels": QUANTILE_LEVELS,
        "workload": workload_document(comparison.workload, reading),
        "fleet": described_document(comparison),
        "objectives": None if objectives is None else asdict(objectives),
        "baseline": comparison.baseline.label,
        "results": [_result_document(result) for result in comparison.results],
        "warnings": list(comparison.warnings),
        "advice": asdict(advise_on_fleet(comparison)),
    }


def described_document(comparison: FleetComparison) -> dict[str, Any]:
    """The fleet as it was run: every engine's limits and costs, a group each."""
    described, fleet = comparison.description, comparison.fleet
    groups, first = [], 0
    for group in described.ordered:
        groups.append(_group_document(group, msgspec.to_builtins(fleet.engines[first])))
        first += group.count
    split = fleet.split
    return {
        "replicas": described.replicas,
        "gpus": described.gpus,
        "model": ENGINE_MODEL,
        "block_size": fleet.engines[0].block_size,
        "groups": groups,
        "link": None if split is None else asdict(split),
        "conditions": asdict(described.conditions),
        "seed": comparison.trial.seed,
    }


def _group_document(group: Group, engine: dict[str, Any]) -> dict[str, Any]:
    if isinstance(group.hardware, Instance):
        instance = group.hardware
        hardware: dict[str, Any] = {
            "model": instance.model.name,
            "device": instance.device.name,
            "tp": instance.tp,
            "pp": instance.pp,
            "costs_from": "roofline",
        }
    else:
        facts = group.hardware.file.engine
        hardware = {
            "model": facts.served_model,
            "device": None,
            "tp": facts.tensor_parallel,
            "pp": 1,
            "costs_from": group.hardware.path,
        }
    return {
        "count": group.count,
        "role": group.role,
        "gpus": group.gpus,
        **hardware,
        "engine": engine,
    }


def _result_document(result: FleetResult) -> dict[str, Any]:
    metrics = asdict(result.metrics)
    for name in ("skews", "replicas"):  # of all replicas as if they were one pool
        del metrics[name]
    return {
        **policy_document(result.policy),
        "metrics": metrics,
        "skews": {pool: asdict(skews) for pool, skews in result.skews.items()},
        "to_baseline": [_difference_document(each) for each in result.to_baseline],
        "to_best": [_difference_document(each) for each in result.to_best],
        "reasons": result.reasons,
        "locality_audit": audit_document(result.audit),
        "replicas": [asdict(replica) for replica in result.replicas],
        "quantiles": result.quantiles,
        "intervals": {
            name: None if each is None else asdict(each) for name, each in result.intervals.items()
        },
        "reasons_over_time": over_time_document(result.reasons_over_time),
        "over_time": None if result.over_time is None else asdict(result.over_time),
    }


def _difference_document(difference: Difference) -> dict[str, Any]:
    interval = difference.interval
    return {
        "figure": difference.figure,
        "interval": None if interval is None else asdict(interval),
        "verdict": difference.verdict,
        "bearable_error_fraction": difference.bearable_error_fraction,
    }
