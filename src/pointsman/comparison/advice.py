"""Which policy to take, in one sentence with its reasons."""

from __future__ import annotations

from dataclasses import dataclass

from pointsman.comparison.policies import Comparison, PolicyResult

# Closer than this, P95 queue waits are called equal: one workload cannot tell them apart.
EQUAL_WITHIN_FRACTION = 0.02
EQUAL_WITHIN_MS = 0.5


@dataclass(frozen=True, slots=True)
class Advice:
    """The policy to take and why; ``policy`` is None where the workload does not tell."""

    policy: str | None
    sentence: str


def advise(comparison: Comparison) -> Advice:
    """Name the policy with the shortest P95 queue wait, unless others come out equal.

    Among equals the one that reads the fewest signals is taken: what need not be measured cannot
    be stale. It holds for this workload and fleet, under the simulator's assumptions.
    """
    best = comparison.results[0]
    equals = [result for result in comparison.results if _equal(result, best)]
    others = [result for result in comparison.results if not _equal(result, best)]
    chosen = min(equals, key=lambda result: len(result.policy.reads))
    if len(comparison.results) == 1:
        return Advice(None, f"Only {chosen.policy.label} was run: {_wait(chosen)}.")
    if not others:
        return Advice(
            None,
            f"No policy to prefer on this workload: P95 queue waits are equal"
            f" ({_wait(chosen)}); {chosen.policy.label} reads the fewest signals.",
        )
    rival = others[0]
    return Advice(
        chosen.policy.name,
        f"Take {chosen.policy.label}: {_wait(chosen)} against {_ms(_p95(rival))} for"
        f" {rival.policy.label}{_tie_note(chosen, equals)}; {_behind(chosen, rival)}.",
    )


def _equal(result: PolicyResult, best: PolicyResult) -> bool:
    difference_ms = _p95(result) - _p95(best)
    return difference_ms <= max(EQUAL_WITHIN_MS, EQUAL_WITHIN_FRACTION * _p95(best))


def _behind(chosen: PolicyResult, rival: PolicyResult) -> str:
    ours, theirs = chosen.metrics, rival.metrics
    terms = [
        f"{ours.p99_queue_wait_ms:,.1f} against {theirs.p99_queue_wait_ms:,.1f} ms at P99",
        f"cache hits {ours.cache_hit_rate:.1%} against {theirs.cache_hit_rate:.1%}",
        f"busy-time skew {ours.busy_skew_ratio:.2f} against {theirs.busy_skew_ratio:.2f}",
    ]
    return ", ".join(terms)


def _tie_note(chosen: PolicyResult, equals: list[PolicyResult]) -> str:
    names = [result.policy.label for result in equals if result is not chosen]
    return f" (equal within {EQUAL_WITHIN_FRACTION:.0%}: {', '.join(names)})" if names else ""


def _wait(result: PolicyResult) -> str:
    return f"P95 queue wait {_ms(_p95(result))}"


def _p95(result: PolicyResult) -> float:
    return result.metrics.p95_queue_wait_ms


def _ms(value: float) -> str:
    return f"{value:,.1f} ms"
