"""Which policy to take, in one sentence with its reasons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pointsman.comparison.policies import Comparison, PolicyResult

# Closer than this, two figures are called equal: one workload cannot tell them apart.
EQUAL_WITHIN_FRACTION = 0.02
EQUAL_WITHIN_MS = 0.5


@dataclass(frozen=True, slots=True)
class Advice:
    """The policy to take and why; ``policy`` is None where the workload does not tell."""

    policy: str | None
    sentence: str


def advise(comparison: Comparison) -> Advice:
    """Name the policy with the shortest P95 latency; among equals, the shortest P95 queue wait.

    Latency comes first because it is what a user waits for: it has the queue wait in it, and what
    a cache saved. Where both are equal, the policy that reads the fewest signals: what need not be
    measured cannot be stale. It holds for this workload and fleet, under the simulator's
    assumptions.
    """
    results = comparison.results
    if len(results) == 1:
        return Advice(None, f"Only {results[0].policy.label} was run: {_latencies(results)}.")
    equals = _least(_least(results, _p95_latency), _p95_wait)
    chosen = min(equals, key=lambda result: len(result.policy.reads))
    others = [result for result in results if result not in equals]
    if not others:
        return Advice(
            None,
            f"No policy to prefer on this workload: {_latencies(results)}, and equal queue waits;"
            f" {chosen.policy.label} reads the fewest signals.",
        )
    return Advice(
        chosen.policy.name,
        f"Take {chosen.policy.label}: {_latencies([chosen, *others])}{_also(chosen, equals)}."
        f" Why: {_why(chosen, min(others, key=_p95_latency))}.",
    )


def _least(
    results: Sequence[PolicyResult], figure: Callable[[PolicyResult], float]
) -> list[PolicyResult]:
    least = min(map(figure, results))
    margin = max(EQUAL_WITHIN_MS, EQUAL_WITHIN_FRACTION * least)
    return [result for result in results if figure(result) <= least + margin]


def _latencies(results: Sequence[PolicyResult]) -> str:
    first, *others = results
    text = f"P95 latency {_ms(_p95_latency(first))}"
    if others:
        listed = [f"{_ms(_p95_latency(other))} ({other.policy.label})" for other in others]
        text += f" against {', '.join(listed)}"
    return text


def _also(chosen: PolicyResult, equals: Sequence[PolicyResult]) -> str:
    names = [result.policy.label for result in equals if result is not chosen]
    return f"; {', '.join(names)} within {EQUAL_WITHIN_FRACTION:.0%} of it" if names else ""


def _why(chosen: PolicyResult, rival: PolicyResult) -> str:
    ours, theirs = chosen.metrics, rival.metrics
    if ours.cached_token_fraction is not None and theirs.cached_token_fraction is not None:
        what = "of the prompt tokens are found in a cache"
        cached = (ours.cached_token_fraction, theirs.cached_token_fraction)
    else:
        what = "of the requests find a cached prefix"
        cached = (ours.cache_hit_rate, theirs.cache_hit_rate)
    return (
        f"{cached[0]:.1%} {what} against {cached[1]:.1%} with {rival.policy.label},"
        f" P95 queue wait is {_ms(_p95_wait(chosen))} against {_ms(_p95_wait(rival))},"
        f" busy-time skew {ours.busy_skew_ratio:.2f} against {theirs.busy_skew_ratio:.2f}"
    )


def _p95_wait(result: PolicyResult) -> float:
    return result.metrics.p95_queue_wait_ms


def _p95_latency(result: PolicyResult) -> float:
    return result.metrics.p95_latency_ms


def _ms(value: float) -> str:
    return f"{value:,.1f} ms"
