"""The audit of locality choices as a sentence and as a document."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pointsman.comparison.locality_audit import LocalityAudit
from pointsman.report.table import number, percent


def audit_sentence(name: str, audit: LocalityAudit) -> str:
    """How much longer choices for locality waited, and how many beyond their bound."""
    spread = audit.realised_extra_ms
    bound = "what each saves" if audit.bound_ms is None else f"{number(audit.bound_ms)} ms"
    head = f"locality of {name}: {number(audit.choices)} choices, bound {bound}"
    if spread.mean is None or spread.p95 is None or spread.worst is None:
        return f"{head}; none of them finished" if audit.choices else head
    beyond = f"{number(audit.over_bound)} ({percent(audit.over_bound_fraction)}) beyond the bound"
    if min(spread.mean, spread.p95, spread.worst) < 0.0:  # the wait to beat is an expected one
        return (
            f"{head}; against what was expected of the shortest queue they waited"
            f" {_more_or_less(spread.mean)} in the mean, {_more_or_less(spread.p95)} at P95,"
            f" {_more_or_less(spread.worst)} at worst; {beyond}"
        )
    return (
        f"{head}; they waited longer than the shortest queue by {number(spread.mean)} ms in the"
        f" mean, {number(spread.p95)} at P95, {number(spread.worst)} at worst; {beyond}"
    )


def _more_or_less(extra_ms: float) -> str:
    return f"{number(abs(extra_ms))} ms {'less' if extra_ms < 0.0 else 'more'}"


def audit_document(audit: LocalityAudit | None) -> dict[str, Any] | None:
    """The audit by name; None where the policy has no such bound."""
    if audit is None:
        return None
    return {**asdict(audit), "over_bound_fraction": audit.over_bound_fraction}
