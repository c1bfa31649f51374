"""From a document to a result, by its schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pointsman.core.errors import InputError, missing_field, unknown_name
from pointsman.report.html.result import Result
from pointsman.report.html.sources.calibration import calibration_result
from pointsman.report.html.sources.compare import compare_result
from pointsman.report.html.sources.fleet import fleet_result
from pointsman.report.html.sources.load_bench import bench_result
from pointsman.report.html.sources.plan import plan_result
from pointsman.report.html.sources.prediction_report import SCHEMA as PREDICTION_REPORT
from pointsman.report.html.sources.prediction_report import prediction_result
from pointsman.report.html.sources.replay import replay_result

READERS: dict[str, Callable[[Any, str], Result]] = {
    "pointsman.compare/1": compare_result,
    "pointsman.fleet-comparison/1": fleet_result,
    "pointsman.plan/1": plan_result,
    "pointsman.policies-bench/1": bench_result,
    "pointsman.replay/1": replay_result,
    "pointsman.calibration/1": calibration_result,
    PREDICTION_REPORT: prediction_result,
}


def result_of(document: Any, label: str) -> Result:
    """A document as a page shows it. Raises InputError for one that no page is made of."""
    if not isinstance(document, dict):
        raise InputError(f"{label}: no JSON object; expected a result of pointsman")
    schema = document.get("schema")
    if not isinstance(schema, str):
        raise missing_field(label, "schema", f"one of {', '.join(sorted(READERS))}")
    if schema not in READERS:
        raise unknown_name(label, "schema", schema, READERS)
    return READERS[schema](document, label)
