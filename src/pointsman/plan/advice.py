"""What to take, in one sentence."""

from __future__ import annotations

from dataclasses import dataclass

from pointsman.plan.candidate import ShapeResult
from pointsman.plan.plan import Plan
from pointsman.plan.simulations import goodput_fraction
from pointsman.verdict.decide import ACCEPT


@dataclass(frozen=True, slots=True)
class Advice:
    """``shape`` is None where nothing is to be taken yet."""

    shape: str | None
    policy: str | None
    sentence: str


def advise(plan: Plan) -> Advice:
    """The first accepted shape of the ranking; else why there is none, and what is nearest."""
    baseline = plan.baseline
    if _keeps(plan, baseline) and plan.results[0] == baseline:
        sentence = (
            f"Keep {baseline.shape.label}: it keeps the objectives in {_share(baseline)} of the"
            f" requests, and no shape does on fewer GPUs."
        )
        return Advice(baseline.shape.label, baseline.policy, sentence)
    for result in plan.results:
        if result.judgement is not None and result.judgement.decision == ACCEPT:
            return Advice(result.shape.label, result.policy, _accepted(plan, result))
    return Advice(None, None, _nothing(plan))


def _accepted(plan: Plan, result: ShapeResult) -> str:
    sentence = (
        f"Take {result.shape.label} ({result.shape.gpus} GPUs) with {result.policy}: it keeps the"
        f" objectives in {_share(result)} of the requests, {_rate(plan, result)}."
    )
    first = plan.results[0]
    if first.shape.gpus < result.shape.gpus and _keeps(plan, first):
        sentence += (
            f" {first.shape.label} keeps them too, on {first.shape.gpus} GPUs, and is not decided:"
            " see its reason."
        )
    return sentence


def _nothing(plan: Plan) -> str:
    first = plan.results[0]
    if _keeps(plan, first):
        return (
            f"Nothing is accepted. First is {first.shape.label} with {first.policy}, which keeps"
            f" the objectives in {_share(first)} of the requests, {_rate(plan, first)}: see its"
            " reason."
        )
    return (
        f"No shape keeps the objectives at the offered {plan.offered_rps:.3g} requests a second."
        f" Nearest is {first.shape.label} with {first.policy}: {_share(first)} of the requests,"
        f" {_rate(plan, first)}."
    )


def _keeps(plan: Plan, result: ShapeResult) -> bool:
    return goodput_fraction(result.metrics) >= plan.question.attainment


def _share(result: ShapeResult) -> str:
    return f"{goodput_fraction(result.metrics):.1%}"


def _rate(plan: Plan, result: ShapeResult) -> str:
    held = result.limit.held
    if held is None:
        return "and enough at no rate"
    least = "at least " if result.limit.failed is None else ""
    return f"and up to {least}{held * plan.offered_rps:.3g} requests a second"
