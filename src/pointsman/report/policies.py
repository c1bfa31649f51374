"""The catalogue of policies as text, JSON and CSV."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from pointsman.policies.policy import READABLE, Policy
from pointsman.report.document import text_of
from pointsman.report.table import csv_text

POLICIES_SCHEMA = "pointsman.policies/1"
_WIDTH = 96


def policies_text(policies: Sequence[Policy], form: str) -> str:
    """Each policy with its rule, source, signals, reasons and parameters."""
    rows = [_row(policy) for policy in policies]
    if form == "json":
        return text_of({"schema": POLICIES_SCHEMA, "policies": rows})
    if form == "csv":
        flat = [[_flat(value) for value in row.values()] for row in rows]
        return csv_text(list(rows[0]), flat)
    return "\n".join(_paragraph(row) for row in rows)


def _row(policy: Policy) -> dict[str, Any]:
    return {
        "name": policy.name,
        "rule": policy.rule,
        "source": policy.source,
        "reads": [signal for signal in READABLE if signal in policy.reads],
        "needs": "a fleet that batches" if policy.needs_batching else "",
        "reasons": list(policy.reasons),
        "parameters": dict(policy.parameters),
    }


def _paragraph(row: dict[str, Any]) -> str:
    lines = [row["name"]]
    for name in ("rule", "source", "reads", "needs", "reasons", "parameters"):
        if row[name]:
            text = f"{name + ':':<12}{_flat(row[name])}"
            lines += textwrap.wrap(text, _WIDTH, initial_indent="  ", subsequent_indent=" " * 14)
    return "\n".join(lines) + "\n"


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={number:g}" for name, number in value.items())
    return ", ".join(value) if isinstance(value, list) else str(value)
