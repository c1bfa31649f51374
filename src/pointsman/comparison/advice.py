"""Which policy to take, in one sentence with its reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pointsman.comparison.policies import Comparison, PolicyResult

# Closer than this, two figures are called equal: one workload cannot tell them apart.
EQUAL_WITHIN_FRACTION = 0.02
EQUAL_WITHIN_MS = 0.5
EQUAL_WITHIN_CACHED_FRACTION = 0.005
EQUAL_WITHIN_SKEW = 0.02

# With fewer, five or fewer requests lie at or above the P95.
FEW_REQUESTS = 100

Figure = Callable[[PolicyResult], float]


@dataclass(frozen=True, slots=True)
class Advice:
    """The policy to take and why; ``policy`` and ``label`` are None where nothing tells.

    ``label`` is the policy with its parameters.
    """

    policy: str | None
    label: str | None
    sentence: str


def advise(comparison: Comparison) -> Advice:
    """Name the policy with the shortest P95 latency; among equals, the shortest P95 queue wait.

    Latency comes first because it is what a user waits for: it has the queue wait in it, and what
    a cache saved. Where both are equal, the policy that reads the fewest signals: what need not be
    measured cannot be stale. It holds for this workload and fleet, under the simulator's
    assumptions.
    """
    results = comparison.results
    few = few_requests(len(comparison.workload))
    latency = _against("P95 latency", _p95_latency, results)
    if len(results) == 1:
        return Advice(None, None, f"Only {results[0].policy.label} was run: {latency}.{few}")
    fast = _least(results, _p95_latency)
    equals = _least(fast, _p95_wait)
    chosen = min(equals, key=lambda result: len(result.policy.reads))
    if len(equals) == len(results):
        return Advice(
            None,
            None,
            f"No policy to prefer on this workload: {latency}, and equal queue waits;"
            f" {chosen.policy.label} reads the fewest signals.{few}",
        )
    slower = [result for result in results if result not in fast]
    later = [result for result in fast if result not in equals]
    rival = min(later or slower, key=_p95_latency)
    sentence = (
        f"Take {chosen.policy.label}: {_lead(chosen, later, slower)}{_also(chosen, equals)}"
        f"{_reasons(chosen, rival, wait_is_told=bool(later))}.{few}"
    )
    return Advice(chosen.policy.name, chosen.policy.label, sentence)


def _least(results: Sequence[PolicyResult], figure: Figure) -> list[PolicyResult]:
    least = min(map(figure, results))
    margin = _margin(least, EQUAL_WITHIN_MS)
    return [result for result in results if figure(result) <= least + margin]


def _margin(least: float, absolute: float) -> float:
    return max(absolute, EQUAL_WITHIN_FRACTION * least)


def _lead(
    chosen: PolicyResult, later: Sequence[PolicyResult], slower: Sequence[PolicyResult]
) -> str:
    """What decided, first: the wait against those as fast, the latency against the slower ones."""
    clauses = []
    if later:
        wait = _against("P95 queue wait", _p95_wait, [chosen, *later])
        clauses.append(f"{wait}, at P95 latencies within {EQUAL_WITHIN_FRACTION:.0%}")
    if slower:
        clauses.append(_against("P95 latency", _p95_latency, [chosen, *slower]))
    return "; ".join(clauses)


def _against(name: str, figure: Figure, results: Sequence[PolicyResult]) -> str:
    first, *others = results
    text = f"{name} {_ms(figure(first))}"
    if others:
        listed = [f"{_ms(figure(other))} ({other.policy.label})" for other in others]
        text += f" against {', '.join(listed)}"
    return text


def _also(chosen: PolicyResult, equals: Sequence[PolicyResult]) -> str:
    names = [result.policy.label for result in equals if result is not chosen]
    return f"; {', '.join(names)} within {EQUAL_WITHIN_FRACTION:.0%} of it" if names else ""


@dataclass(frozen=True, slots=True)
class _Point:
    """A figure of the chosen policy beside its rival's; ``gain`` > 0 speaks for the choice."""

    text: str
    gain: float
    margin: float


def _reasons(chosen: PolicyResult, rival: PolicyResult, *, wait_is_told: bool) -> str:
    """What speaks for the choice and what against it, figures that are equal left out."""
    points = [_cached(chosen, rival), _skew(chosen, rival)]
    if not wait_is_told:
        points.insert(1, _wait(chosen, rival))
    favour = [point.text for point in points if point.gain > point.margin]
    price = [point.text for point in points if -point.gain > point.margin]
    text = f". Why: {_listed(favour, rival)}" if favour else ""
    if price:
        text += f", at the price of {_listed(price, None if favour else rival)}"
    return text


def _listed(texts: Iterable[str], rival: PolicyResult | None) -> str:
    first, *others = texts
    named = first if rival is None else f"{first} with {rival.policy.label}"
    return ", ".join([named, *others])


def _cached(chosen: PolicyResult, rival: PolicyResult) -> _Point:
    ours, theirs = chosen.metrics.cached_token_fraction, rival.metrics.cached_token_fraction
    what = "of the prompt tokens found in a cache"
    if ours is None or theirs is None:
        ours, theirs = chosen.metrics.cache_hit_rate, rival.metrics.cache_hit_rate
        what = "of the requests with a cached prefix"
    margin = _margin(min(ours, theirs), EQUAL_WITHIN_CACHED_FRACTION)
    return _Point(f"{ours:.1%} {what} against {theirs:.1%}", ours - theirs, margin)


def _wait(chosen: PolicyResult, rival: PolicyResult) -> _Point:
    ours, theirs = _p95_wait(chosen), _p95_wait(rival)
    margin = _margin(min(ours, theirs), EQUAL_WITHIN_MS)
    return _Point(f"a P95 queue wait of {_ms(ours)} against {_ms(theirs)}", theirs - ours, margin)


def _skew(chosen: PolicyResult, rival: PolicyResult) -> _Point:
    ours, theirs = chosen.metrics.busy_skew_ratio, rival.metrics.busy_skew_ratio
    margin = _margin(min(ours, theirs), EQUAL_WITHIN_SKEW)
    return _Point(f"a busy-time skew of {ours:.2f} against {theirs:.2f}", theirs - ours, margin)


def few_requests(requests: int) -> str:
    """A remark where a P95 rests on very few of them; nothing where it does not."""
    if requests >= FEW_REQUESTS:
        return ""
    return f" Few requests ({requests}): a P95 of so few rests on the slowest five at most."


def _p95_wait(result: PolicyResult) -> float:
    return result.metrics.p95_queue_wait_ms


def _p95_latency(result: PolicyResult) -> float:
    return result.metrics.p95_latency_ms


def _ms(value: float) -> str:
    return f"{value:,.1f} ms"
