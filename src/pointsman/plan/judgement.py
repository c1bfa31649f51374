"""Accept, tune or reject a shape against the baseline, as far as noise and model error allow.

The rule is the lesson's (verdict/decide.py), with two more conditions: who accepts must keep the
objectives at the offered rate, and a decision must outlive what is not known, else it is ``tune``:

    noise         the interval on the ratio of latencies, requests paired
    model error   the same interval, with baseline and candidate off in opposite directions
    saturation    the whole rule again with all service times longer, and shorter, by that error
    pipelines     the whole rule again with one micro-batch in them: PP is priced as if they were
                  full, and a lone prompt passes its stages one after the other (docs/costs.md)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pointsman.plan.difference import Difference
from pointsman.plan.measure import ShapeMetrics
from pointsman.plan.question import Question
from pointsman.plan.rate import RateLimit
from pointsman.plan.simulations import goodput_fraction
from pointsman.verdict.decide import (
    ACCEPT,
    NEXT_ACTIONS,
    TUNE,
    Candidate,
    Check,
    Verdict,
    decide,
)
from pointsman.verdict.uncertainty import HIGHER, LOWER

CALIBRATE = "calibrate_costs_on_this_hardware"
MORE_REQUESTS = "repeat_with_more_requests_or_replications"
LESS_LOAD = "add_gpus_or_lower_the_rate"
OTHER_OBJECTIVES = "relax_objectives_or_change_the_hardware"

# How finely the error is found below which a decision stands: halved so often.
_HALVINGS = 4


@dataclass(frozen=True, slots=True)
class Judgement:
    """``undecided_error_fraction``: the model's error below which it would be decided; None where
    it is, or where a smaller error would not help."""

    decision: str
    reason: str
    next_action: str
    checks: tuple[Check, ...]
    near_saturation: bool
    undecided_error_fraction: float | None


@dataclass(frozen=True, slots=True)
class Pair:
    """Baseline and candidate in one world."""

    baseline: ShapeMetrics
    candidate: ShapeMetrics

    def lesson(self, question: Question) -> Verdict:
        """The lesson's verdict on the candidate."""
        candidate = Candidate(
            makespan_ms=self.candidate.serving.makespan_ms,
            imbalance_ratio=self.candidate.imbalance_ratio,
            comm_cost_ms=self.candidate.comm_cost_ms,
        )
        return decide(self.baseline.serving.makespan_ms, candidate, question.limits)

    def objectives(self, question: Question) -> Check:
        """Whether the candidate keeps the objectives at the offered rate."""
        fraction = goodput_fraction(self.candidate)
        passed = fraction >= question.attainment
        return Check("goodput_fraction", fraction, question.attainment, passed)

    def decision(self, question: Question) -> str:
        """The lesson's, but that nothing is accepted that misses the objectives."""
        decision = self.lesson(question).decision
        missed = not self.objectives(question).passed
        return TUNE if decision == ACCEPT and missed else decision


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a judgement rests on; ``perturbed`` gives the pair with other service times,
    ``unfilled`` the one with a single micro-batch in the pipelines, None where there are none."""

    nominal: Pair
    limit: RateLimit
    difference: Difference
    perturbed: Callable[[float], Pair]
    unfilled: Callable[[], Pair] | None = None


@dataclass(frozen=True, slots=True)
class _Doubt:
    """Why a decision does not stand, and the model's error below which it would."""

    reason: str
    next_action: str
    margin: float | None = None


def judge(evidence: Evidence, question: Question) -> Judgement:
    """Decide, and say why in numbers."""
    pair, error = evidence.nominal, question.model_error_fraction
    verdict, check = pair.lesson(question), pair.objectives(question)
    decided = pair.decision(question)
    near = near_saturation(evidence.limit, error)
    doubt = None if decided == TUNE else _doubt(decided, evidence, question)
    reason = "; ".join(
        (verdict.reason, _objectives_reason(check, evidence.limit), _latency_reason(evidence))
    )
    action = NEXT_ACTIONS[decided]
    if decided == TUNE and verdict.decision == ACCEPT:
        action = OTHER_OBJECTIVES if evidence.limit.held is None else LESS_LOAD
    if doubt is None and decided == TUNE and near:
        doubt = _near_saturation(evidence.limit, error)
        if verdict.decision == TUNE:  # what the lesson says to do comes first
            doubt = replace(doubt, next_action=action)
    if doubt is not None:
        reason = f"undecided: {doubt.reason}; {reason}"
        action = doubt.next_action
    return Judgement(
        decision=decided if doubt is None else TUNE,
        reason=reason,
        next_action=action,
        checks=(*verdict.checks, check),
        near_saturation=near,
        undecided_error_fraction=None if doubt is None else doubt.margin,
    )


def near_saturation(limit: RateLimit, error: float) -> bool:
    """Whether service times that are off by that much move the limit over the offered rate."""
    if limit.held is None or limit.failed is None:
        return False
    return limit.held < 1.0 + error and limit.failed > 1.0 / (1.0 + error)


def _doubt(decision: str, evidence: Evidence, question: Question) -> _Doubt | None:
    """Why the decision does not stand; None where it does."""
    error = question.model_error_fraction
    bearable = evidence.difference.bearable_error(HIGHER if decision == ACCEPT else LOWER)
    if bearable == 0.0:
        reason = f"the interval on latencies does not support {decision}"
        return _Doubt(reason, MORE_REQUESTS)
    if error >= bearable:
        reason = (
            f"a model error of {error:.1%} explains the difference; below {bearable:.1%} it is"
            f" {decision}"
        )
        return _Doubt(reason, CALIBRATE, bearable)
    if decision == ACCEPT and near_saturation(evidence.limit, error):
        return _near_saturation(evidence.limit, error)
    if not _stands(decision, error, evidence, question):
        margin = _largest_bearable(decision, evidence, question)
        reason = (
            f"service times off by {error:.1%} turn {decision} into another verdict, off by"
            f" {100.0 * margin:.3g}% they do not"
        )
        return _Doubt(reason, CALIBRATE, margin)
    if evidence.unfilled is not None:
        other = evidence.unfilled().decision(question)
        if other != decision:
            return _Doubt(
                f"{decision} rests on full pipelines, with one batch in them it is {other}",
                CALIBRATE,
            )
    return None


def other_worlds(error: float) -> tuple[float, ...]:
    """How much slower everything may be in truth, and how much faster."""
    return (1.0 + error, 1.0 / (1.0 + error)) if error else ()


def _stands(decision: str, error: float, evidence: Evidence, question: Question) -> bool:
    return all(
        evidence.perturbed(slowness).decision(question) == decision
        for slowness in other_worlds(error)
    )


def _largest_bearable(decision: str, evidence: Evidence, question: Question) -> float:
    """The largest error found with which the decision stands; 0 if there was none."""
    stands, turns = 0.0, question.model_error_fraction
    for _ in range(_HALVINGS):
        middle = (stands + turns) / 2.0
        if _stands(decision, middle, evidence, question):
            stands = middle
        else:
            turns = middle
    return stands


def _near_saturation(limit: RateLimit, error: float) -> _Doubt:
    assert limit.held is not None
    assert limit.failed is not None
    margin = limit.held - 1.0 if limit.held >= 1.0 else 1.0 / limit.failed - 1.0
    margin = max(0.0, margin)
    reason = (
        f"near saturation: service times off by {error:.1%} move the offered rate over the limit,"
        f" off by less than {100.0 * margin:.3g}% they do not"
    )
    return _Doubt(reason, CALIBRATE, margin)


def _objectives_reason(check: Check, limit: RateLimit) -> str:
    word = "keeps" if check.passed else "misses"
    text = f"{word} the objectives in {check.value:.2%} of requests against {check.limit:.2%}"
    if limit.held is None:
        return f"{text}, and at no rate"
    least = "at least " if limit.failed is None else ""
    return f"{text}, up to {least}{limit.held:.3g} times the rate"


def _latency_reason(evidence: Evidence) -> str:
    ratio = evidence.difference.e2e_ratio
    if ratio is None:
        return "no requests to compare finished on both"
    return (
        f"a request takes {ratio.estimate:.3g} times as long as on the baseline"
        f" ({ratio.low:.3g} to {ratio.high:.3g})"
    )
