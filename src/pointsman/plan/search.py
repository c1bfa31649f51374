"""One shape with every policy: what it does at the offered rate, and the highest that it holds."""

from __future__ import annotations

from dataclasses import dataclass

from pointsman.plan.measure import Columns, ShapeMetrics
from pointsman.plan.rate import (
    LEAST_FACTOR,
    MOST_FACTOR,
    NEVER,
    RateLimit,
    highest_rate,
    rate_from,
    tolerance,
)
from pointsman.plan.simulations import AS_OFFERED, Setting, Simulations, goodput_fraction
from pointsman.policies.policy import Policy


@dataclass(frozen=True, slots=True)
class PolicyFigures:
    """A policy on a shape at the offered rate; ``limit`` is None where it was not searched."""

    policy: str
    goodput_fraction: float
    mean_e2e_ms: float | None
    limit: RateLimit | None


@dataclass(frozen=True, slots=True)
class Found:
    """The best policy of a shape, what it does at the offered rate, and at its highest."""

    policy: Policy
    metrics: ShapeMetrics
    columns: Columns
    limit: RateLimit
    at_limit: ShapeMetrics | None
    tried: tuple[PolicyFigures, ...]


class _Climb:
    """The search of one policy's highest rate; keeps the figures of the highest that held."""

    def __init__(self, simulations: Simulations, policy: Policy) -> None:
        self._simulations, self._policy = simulations, policy
        self.best: tuple[float, ShapeMetrics] | None = None

    def seen(self, rate: float, metrics: ShapeMetrics) -> bool:
        held = self._simulations.holds(metrics)
        if held and (self.best is None or rate > self.best[0]):
            self.best = (rate, metrics)
        return held

    def __call__(self, rate: float) -> bool:
        metrics, _ = self._simulations.run(self._policy, Setting(rate=rate))
        return self.seen(rate, metrics)


def search(simulations: Simulations, most_rate: float = MOST_FACTOR) -> Found:
    """Try all policies at the offered rate, and take the one that holds the highest rate.

    The best at the offered rate is searched in full; another one only if it holds what that one
    does, and a little more. Where some keep the objectives and the load even enough at the offered
    rate, the others are not searched. A single candidate leaves nothing to choose: one policy is
    tried.
    """
    policies = simulations.question.policy_objects()
    if simulations.deployment.fleet.candidates.shape[0] == 1:
        policies = policies[:1]
    runs = {policy.label: simulations.run(policy) for policy in policies}
    order = sorted(policies, key=lambda policy: _at_offered(runs[policy.label][0]))
    sound = [policy for policy in order if _is_sound(simulations, runs[policy.label][0])]
    best, best_climb, best_limit = (sound or order)[0], None, NEVER
    limits: dict[str, RateLimit] = {}
    for policy in sound or order:
        climb = _Climb(simulations, policy)
        at_one = climb.seen(AS_OFFERED.rate, runs[policy.label][0])
        limit = _limit(climb, at_one, most_rate, best_limit if best_climb else None)
        if limit is None:
            continue
        if best_climb is None or (limit.held or 0.0) > (best_limit.held or 0.0):
            best, best_climb, best_limit = policy, climb, limit
        limits[policy.label] = limit
    metrics, columns = runs[best.label]
    top = best_climb.best if best_climb is not None else None
    return Found(
        policy=best,
        metrics=metrics,
        columns=columns,
        limit=best_limit,
        at_limit=None if top is None else top[1],
        tried=tuple(_figures(policy, runs[policy.label][0], limits) for policy in order),
    )


def _limit(
    climb: _Climb, at_one: bool, most: float, standing: RateLimit | None
) -> RateLimit | None:
    """A policy's limit; None where it does not hold more than the best so far."""
    most = max(1.0, most)
    if standing is None:
        return highest_rate(climb, at_one=at_one, most=most)
    if standing.failed is None:
        return None
    start = LEAST_FACTOR if standing.held is None else standing.held
    more = start if standing.held is None else start * (1.0 + tolerance(start))
    if more > most or not climb(more):
        return None
    return rate_from(climb, more, most)


def _is_sound(simulations: Simulations, metrics: ShapeMetrics) -> bool:
    """Whether a policy breaks no condition of the verdict that it could keep."""
    most = simulations.question.limits.max_imbalance_ratio
    return simulations.holds(metrics) and metrics.imbalance_ratio <= most


def _at_offered(metrics: ShapeMetrics) -> tuple[float, float]:
    """The order of policies: most goodput first, then the shortest mean latency."""
    mean_ms = metrics.serving.e2e_ms.mean
    return (-goodput_fraction(metrics), float("inf") if mean_ms is None else mean_ms)


def _figures(policy: Policy, metrics: ShapeMetrics, limits: dict[str, RateLimit]) -> PolicyFigures:
    return PolicyFigures(
        policy=policy.label,
        goodput_fraction=goodput_fraction(metrics),
        mean_e2e_ms=metrics.serving.e2e_ms.mean,
        limit=limits.get(policy.label),
    )
