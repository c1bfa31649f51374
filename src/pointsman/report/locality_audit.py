"""The audit of locality choices as a sentence and as a document."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pointsman.comparison.locality_audit import LocalityAudit
from pointsman.report.table import number, percent


def audit_sentence(audit: LocalityAudit) -> str:
    """How much longer choices for locality waited, and how many beyond their bound."""
    if not audit.choices:
        return "no choice for locality"
    spread = audit.realised_extra_ms
    bound = "what each saves" if audit.bound_ms is None else f"{number(audit.bound_ms)} ms"
    if spread.mean is None or spread.p95 is None or spread.worst is None:
        return f"{number(audit.choices)} choices for locality, none finished"
    return (
        f"{number(audit.choices)} choices for locality, bound {bound}: really waited longer than"
        f" the shortest queue by {number(spread.mean)} ms in the mean, {number(spread.p95)} at P95,"
        f" {number(spread.worst)} at worst; {number(audit.over_bound)}"
        f" ({percent(audit.over_bound_fraction)}) beyond the bound"
    )


def audit_document(audit: LocalityAudit | None) -> dict[str, Any] | None:
    """The audit by name; None where the policy has no such bound."""
    if audit is None:
        return None
    return {**asdict(audit), "over_bound_fraction": audit.over_bound_fraction}
