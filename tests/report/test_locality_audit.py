"""The audit of locality choices in a sentence."""

from __future__ import annotations

from pointsman.comparison.locality_audit import LocalityAudit
from pointsman.metrics.latency import Spread
from pointsman.report.locality_audit import audit_sentence

NONE = Spread()


def audit(mean: float, p95: float, worst: float) -> LocalityAudit:
    return LocalityAudit(
        choices=10,
        bound_ms=20.0,
        expected_extra_ms=NONE,
        realised_extra_ms=Spread(count=10, mean=mean, p95=p95, worst=worst),
        over_bound=1,
    )


def test_what_they_waited_longer_is_said():
    assert audit_sentence("rule", audit(2.0, 18.0, 25.0)) == (
        "locality of rule: 10 choices, bound 20 ms; they waited longer than the shortest queue by"
        " 2 ms in the mean, 18 at P95, 25 at worst; 1 (10.0%) beyond the bound"
    )


def test_less_than_was_expected_is_less_and_not_longer_by_less_than_nothing():
    assert audit_sentence("rule", audit(-6.95, 12.0, 25.0)) == (
        "locality of rule: 10 choices, bound 20 ms; against what was expected of the shortest"
        " queue they waited 6.95 ms less in the mean, 12 ms more at P95, 25 ms more at worst;"
        " 1 (10.0%) beyond the bound"
    )
