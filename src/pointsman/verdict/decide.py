"""Accept, tune or reject a candidate against a baseline.

    accept   it is faster, its load is even enough and it communicates little enough
    tune     it is faster, but one of the two others fails
    reject   it is not faster

Source: the lesson on distributed inference.
"""

from __future__ import annotations

from dataclasses import dataclass

ACCEPT = "accept"
TUNE = "tune"
REJECT = "reject"

NEXT_ACTIONS = {
    ACCEPT: "promote_to_real_cluster_check",
    TUNE: "refine_routing_or_parallel_degree",
    REJECT: "fallback_to_single_replica_audit",
}


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a candidate needs for the workload; times in ms."""

    makespan_ms: float
    imbalance_ratio: float
    comm_cost_ms: float


@dataclass(frozen=True, slots=True)
class Limits:
    """How uneven and how chatty a candidate may be (ratios >= 0)."""

    max_imbalance_ratio: float
    max_comm_ratio: float


@dataclass(frozen=True, slots=True)
class Check:
    """One condition with the figures that decided it."""

    name: str
    value: float
    limit: float
    passed: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision, the sentence that says why, what to do next, and the checks behind it."""

    decision: str
    reason: str
    next_action: str
    checks: tuple[Check, ...]


def decide(baseline_ms: float, candidate: Candidate, limits: Limits) -> Verdict:
    """Compare a candidate's makespan, imbalance and communication with a baseline's time.

    ``comm_ratio`` is the candidate's communication over the baseline's time; 0 for a baseline
    of 0. Equal times are not an improvement.
    """
    comm_ratio = candidate.comm_cost_ms / baseline_ms if baseline_ms else 0.0
    faster = Check(
        "makespan_ms", candidate.makespan_ms, baseline_ms, candidate.makespan_ms < baseline_ms
    )
    even = _at_most("imbalance_ratio", candidate.imbalance_ratio, limits.max_imbalance_ratio)
    quiet = _at_most("comm_ratio", comm_ratio, limits.max_comm_ratio)
    if not faster.passed:
        decision = REJECT
    elif even.passed and quiet.passed:
        decision = ACCEPT
    else:
        decision = TUNE
    return Verdict(
        decision=decision,
        reason=_sentence(decision, faster, (even, quiet)),
        next_action=NEXT_ACTIONS[decision],
        checks=(faster, even, quiet),
    )


def _at_most(name: str, value: float, limit: float) -> Check:
    return Check(name, value, limit, value <= limit)


def _sentence(decision: str, faster: Check, bounds: tuple[Check, ...]) -> str:
    time = f"makespan {_ms(faster.value)} against the baseline's {_ms(faster.limit)}"
    if decision == REJECT:
        return f"no gain: {time}"
    terms = [
        f"{check.name} {check.value:.4g} is {'within' if check.passed else 'above'}"
        f" {check.limit:.4g}"
        for check in bounds
    ]
    return f"faster: {time}; {', '.join(terms)}"


def _ms(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 1000.0 else f"{value:.4g} ms"
