"""Accept, tune, reject, at the edges too."""

from __future__ import annotations

import pytest

from pointsman.verdict.decide import Candidate, Limits, decide

LIMITS = Limits(max_imbalance_ratio=0.8, max_comm_ratio=0.05)


@pytest.mark.parametrize(
    ("baseline_ms", "candidate", "decision"),
    [
        (100.0, Candidate(50.0, 0.8, 5.0), "accept"),  # both limits met exactly
        (100.0, Candidate(50.0, 0.8001, 5.0), "tune"),
        (100.0, Candidate(50.0, 0.8, 5.001), "tune"),
        (100.0, Candidate(100.0, 0.0, 0.0), "reject"),  # as fast is not faster
        (0.0, Candidate(0.0, 0.0, 3.0), "reject"),
    ],
)
def test_the_decision(baseline_ms, candidate, decision):
    assert decide(baseline_ms, candidate, LIMITS).decision == decision


def test_the_reason_names_what_failed_with_its_figures():
    verdict = decide(100.0, Candidate(50.0, 0.9, 10.0), LIMITS)
    assert "imbalance_ratio 0.9 is above 0.8" in verdict.reason
    assert "comm_ratio 0.1 is above 0.05" in verdict.reason
    assert [check.passed for check in verdict.checks] == [True, False, False]
