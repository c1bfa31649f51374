"""A decision in the lesson's four blocks: baseline, candidate, comparison, decision."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pointsman.report.document import DECISION_SCHEMA, text_of
from pointsman.report.table import cell, csv_text, number, text_table, wrapped
from pointsman.verdict.decide import Verdict
from pointsman.verdict.figures import Figures

_DIGITS = 6  # a check that fails by little is to be seen failing


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict with what it was reached from."""

    baseline: Figures
    candidate: Figures
    verdict: Verdict


def decision_text(decision: Decision, form: str) -> str:
    """The decision as ``table``, ``json`` or ``csv``."""
    document = decision_document(decision)
    if form == "json":
        return text_of(document)
    blocks = ("baseline", "candidate", "comparison", "decision")
    rows = [
        (block, name, value)
        for block in blocks
        for name, value in document[block].items()
        if not isinstance(value, list)
    ]
    if form == "csv":
        return csv_text(("block", "name", "value"), rows)
    return _table(rows, decision.verdict)


def decision_document(decision: Decision) -> dict[str, Any]:
    """The four blocks, each figure under the name that the estimate has it."""
    baseline, candidate, verdict = decision.baseline, decision.candidate, decision.verdict
    baseline_ms = baseline.required("single_replica_time_ms")
    makespan_ms = candidate.required("makespan_ms")
    checks = {check.name: check for check in verdict.checks}
    return {
        "schema": DECISION_SCHEMA,
        "baseline": {
            "file": baseline.name,
            "requests": baseline.requests,
            "workload_sha256": baseline.workload_sha256,
            "single_replica_time_ms": baseline_ms,
            "routing_strategy": baseline.summary.routing_strategy,
        },
        "candidate": {
            "file": candidate.name,
            "serving_mode": candidate.summary.serving_mode,
            "replicas": candidate.replicas,
            "tp_degree": candidate.shape.tp_degree,
            "pp_stages": candidate.shape.pp_stages,
            "comm_cost_ms": candidate.summary.comm_cost_ms,
            "handoff_total_ms": candidate.summary.handoff_total_ms,
        },
        "comparison": {
            "makespan_ms": makespan_ms,
            "speedup": baseline_ms / makespan_ms if makespan_ms else None,
            "throughput_req_per_ms": candidate.summary.throughput_req_per_ms,
            "imbalance_ratio": checks["imbalance_ratio"].value,
            "comm_ratio": checks["comm_ratio"].value,
        },
        "decision": {
            "decision": verdict.decision,
            "reason": verdict.reason,
            "next_action": verdict.next_action,
            "checks": [asdict(check) for check in verdict.checks],
        },
    }


def _table(rows: list[tuple[str, str, object]], verdict: Verdict) -> str:
    shown = [
        (block, name, cell(name, value, _DIGITS))
        for block, name, value in rows
        if block != "decision"
    ]
    checks = [
        (
            check.name,
            number(check.value, _DIGITS),
            number(check.limit, _DIGITS),
            "yes" if check.passed else "NO",
        )
        for check in verdict.checks
    ]
    return "\n".join(
        (
            text_table(("block", "figure", "value"), shown, left_columns=2),
            text_table(("check", "value", "limit", "holds"), checks),
            wrapped(f"{verdict.decision}: {verdict.reason}") + f"next: {verdict.next_action}\n",
        )
    )
