"""Results as JSON documents; every document names its schema."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import msgspec

from pointsman.comparison.advice import advise
from pointsman.comparison.estimate import Estimate
from pointsman.comparison.policies import Comparison, PolicyResult
from pointsman.core.percentiles import PERCENTILE_METHOD
from pointsman.metrics.distribution import QUANTILE_LEVELS
from pointsman.metrics.reasons import ReasonsOverTime
from pointsman.policies.policy import Policy
from pointsman.report.locality_audit import audit_document
from pointsman.sim.fifo import FifoFleet
from pointsman.workload.reading import ReadOptions
from pointsman.workload.workload import Workload

COMPARE_SCHEMA = "pointsman.compare/1"
ESTIMATE_SCHEMA = "pointsman.estimate/1"
DECISION_SCHEMA = "pointsman.decision/1"
TRACE_SCHEMA = "pointsman.trace/1"
REPLAY_SCHEMA = "pointsman.replay/1"
REPLAYS_SCHEMA = "pointsman.replays/1"  # of several policies

FLEET_MODEL = "single-server, first come first served; caches unbounded, filled when routed"


def text_of(document: dict[str, Any]) -> str:
    """A document as JSON text with a final newline; null for what is no finite number."""
    text = json.dumps(_finite(document), indent=2, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace").decode() + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def head(schema: str) -> dict[str, Any]:
    """How every document begins: its schema, and which version wrote it."""
    return {"schema": schema, "pointsman": version("pointsman")}


def comparison_document(comparison: Comparison, reading: ReadOptions) -> dict[str, Any]:
    """A comparison: schema, workload, fleet, results (the best first) and the advice."""
    return {
        **head(COMPARE_SCHEMA),
        "percentile_method": PERCENTILE_METHOD,
        "quantile_levels": QUANTILE_LEVELS,
        "workload": workload_document(comparison.workload, reading),
        "fleet": fleet_document(comparison.fleet, comparison.seed),
        "results": [_result_document(result) for result in comparison.results],
        "advice": asdict(advise(comparison)),
    }


def estimate_document(estimate: Estimate, reading: ReadOptions) -> dict[str, Any]:
    """An estimate: the ledger and the burst's summary that ``decide`` takes, and the service."""
    return {
        **head(ESTIMATE_SCHEMA),
        "percentile_method": PERCENTILE_METHOD,
        "workload": workload_document(estimate.workload, reading),
        "fleet": fleet_document(estimate.fleet, estimate.seed),
        "policy": policy_document(estimate.policy),
        "ledger": asdict(estimate.ledger),
        "summary": {
            "routing_strategy": estimate.policy.name,
            "serving_mode": estimate.fleet.costs.serving_mode,
            **asdict(estimate.summary),
        },
        "service": asdict(estimate.service),
        "reasons": estimate.reasons,
        "replicas": [asdict(load) for load in estimate.replicas],
    }


def workload_document(workload: Workload, reading: ReadOptions) -> dict[str, Any]:
    """Which requests were used, and how they were read."""
    source = workload.source
    return {
        "source": source.name,
        "format": source.format,
        "sha256": source.sha256,
        "requests": len(workload),
        "skipped_lines": source.skipped_lines,
        "failures_left_out": source.failures_left_out,
        "out_of_order": source.out_of_order,
        "span_ms": workload.span_ms,
        "options": reading_document(reading),
    }


def reading_document(reading: ReadOptions) -> dict[str, Any]:
    """What was asked of the reader beyond the file itself; null where nothing was."""
    return {
        "limit": reading.limit,
        "skip_bad": reading.skip_bad,
        "block_size_tokens": reading.block_size_tokens,
        "time_unit": reading.time_unit,
        "failed_requests": reading.failed_requests,
        "spread_arrivals_seed": reading.spread_seed,
    }


def fleet_document(fleet: FifoFleet, seed: int) -> dict[str, Any]:
    """Which fleet they were run on, and with which constants."""
    return {
        "replicas": fleet.replicas,
        "model": FLEET_MODEL,
        "cache_hit_speedup": fleet.cache_hit_speedup,
        "costs": msgspec.to_builtins(fleet.costs),
        "seed": seed,
    }


def policy_document(policy: Policy) -> dict[str, Any]:
    """A policy as it was run."""
    return {"policy": policy.name, "label": policy.label, "parameters": dict(policy.parameters)}


def over_time_document(reasons: ReasonsOverTime | None) -> dict[str, Any] | None:
    """How often each reason decided in each step; None where nobody counted."""
    return None if reasons is None else asdict(reasons)


def _result_document(result: PolicyResult) -> dict[str, Any]:
    return {
        **policy_document(result.policy),
        "metrics": asdict(result.metrics),
        "reasons": result.reasons,
        "locality_audit": audit_document(result.audit),
        "replicas": [asdict(load) for load in result.replicas],
        "quantiles": result.quantiles,
        "reasons_over_time": over_time_document(result.reasons_over_time),
    }
