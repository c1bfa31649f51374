"""An estimate as a table and as CSV."""

from __future__ import annotations

from pointsman.comparison.estimate import Estimate
from pointsman.report.document import estimate_document, text_of
from pointsman.report.table import csv_text, text_table


def estimate_text(estimate: Estimate, form: str) -> str:
    """The estimate as ``table``, ``json`` or ``csv``."""
    document = estimate_document(estimate)
    if form == "json":
        return text_of(document)
    rows = [
        (block, name, value)
        for block in ("workload", "ledger", "summary", "service", "reasons")
        for name, value in document[block].items()
    ]
    costs = [("costs", name, value) for name, value in document["fleet"]["costs"].items()]
    if form == "csv":
        return csv_text(("block", "name", "value"), [*rows, *costs])
    shown = [(block, name, _shown(value)) for block, name, value in [*rows, *costs]]
    return text_table(("block", "figure", "value"), shown, left_columns=2)


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,.6g}" if isinstance(value, float) else str(value)
