"""From a document to a result, by its schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pointsman.core.errors import InputError, missing_field, shown, unknown_name
from pointsman.report.calibration import CALIBRATION_SCHEMA
from pointsman.report.document import COMPARE_SCHEMA, REPLAY_SCHEMA, REPLAYS_SCHEMA
from pointsman.report.fleet_document import FLEET_SCHEMA
from pointsman.report.html.result import Result
from pointsman.report.html.sources.calibration import calibration_result
from pointsman.report.html.sources.compare import compare_result
from pointsman.report.html.sources.fleet import fleet_result
from pointsman.report.html.sources.load_bench import bench_result
from pointsman.report.html.sources.plan import plan_result
from pointsman.report.html.sources.prediction_report import SCHEMA as PREDICTION_REPORT
from pointsman.report.html.sources.prediction_report import prediction_result
from pointsman.report.html.sources.replay import replay_result, replays_result
from pointsman.report.load_bench_document import BENCH_SCHEMA
from pointsman.report.plan_document import PLAN_SCHEMA

READERS: dict[str, Callable[[Any, str], Result]] = {
    COMPARE_SCHEMA: compare_result,
    FLEET_SCHEMA: fleet_result,
    PLAN_SCHEMA: plan_result,
    BENCH_SCHEMA: bench_result,
    REPLAY_SCHEMA: replay_result,
    REPLAYS_SCHEMA: replays_result,
    CALIBRATION_SCHEMA: calibration_result,
    PREDICTION_REPORT: prediction_result,
}


def result_of(document: Any, label: str) -> Result:
    """A document as a page shows it. Raises InputError for one that no page is made of."""
    if not isinstance(document, dict):
        raise InputError(f"{label}: no JSON object; expected a result of pointsman")
    schema = document.get("schema")
    if schema is None:
        raise missing_field(label, "schema", f"one of {', '.join(sorted(READERS))}")
    if not isinstance(schema, str) or schema not in READERS:
        raise _unknown(label, schema, document.get("pointsman"))
    return READERS[schema](document, label)


def _unknown(label: str, schema: Any, writer: Any) -> InputError:
    """The error for a schema that is none of ours, or ours of another version."""
    name = str(schema).rpartition("/")[0]
    ours = next((each for each in READERS if name and each.rpartition("/")[0] == name), None)
    if ours is None:
        return unknown_name(label, "schema", str(schema), READERS)
    by = f", written by pointsman {writer}" if isinstance(writer, str) else ""
    return InputError(
        f"{label}: schema is {shown(schema)}{by}; this version reads {ours}: expected a result that"
        " it wrote, so run the command again"
    )
