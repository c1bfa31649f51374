"""An estimate as a table and as CSV."""

from __future__ import annotations

from pointsman.comparison.estimate import Estimate
from pointsman.report.document import estimate_document, text_of
from pointsman.report.table import cell, csv_text, text_columns
from pointsman.workload.reading import ReadOptions

TITLES = {
    "workload": "workload",
    "ledger": "ledger: each stage summed over all requests, nothing cached",
    "summary": "summary: the burst, all requests at once",
    "service": "service: the requests as they arrived",
    "reasons": "reasons: how often each decided, as they arrived",
    "costs": "costs: the constants",
}
_DIGITS = 4


def estimate_text(estimate: Estimate, reading: ReadOptions, form: str) -> str:
    """The estimate as ``table``, ``json`` or ``csv``."""
    document = estimate_document(estimate, reading)
    if form == "json":
        return text_of(document)
    document["costs"] = document["fleet"]["costs"]
    options = document["workload"].pop("options")
    document["workload"] |= {name: value for name, value in options.items() if value}
    if form == "csv":
        rows = [(block, *item) for block in TITLES for item in document[block].items()]
        return csv_text(("block", "name", "value"), rows)
    width = max(len(name) for block in TITLES for name in document[block])
    return "\n".join(
        f"{title}\n{_block(document[block], width)}" for block, title in TITLES.items()
    )


def _block(figures: dict[str, object], width: int) -> str:
    """The figures of one block, in columns that stand alike in all blocks."""
    rows = [(f"  {name:<{width}}", cell(name, value, _DIGITS)) for name, value in figures.items()]
    return text_columns(rows)
