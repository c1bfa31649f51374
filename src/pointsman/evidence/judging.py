"""Accept, tune or reject a measured group against the baseline.

Two verdicts are reached, and the stricter one stands:

    logic      the lesson's simple rule (``verdict/decide.py``) on the measured figures
    measured   all figures together, and only what their intervals tell apart

So the measured verdict is never looser than the lesson's. Source of what each decision means: the
lesson on distributed inference, step 5.6 (accept: the gain fits the objectives; tune: routing,
degree or hand-off can still be changed; reject: failed, or tails or transfers ate the gain).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pointsman.evidence.comparable import Comparable
from pointsman.evidence.figures import (
    BETTER,
    UNKNOWN,
    WORSE,
    Compared,
    compare_figures,
)
from pointsman.evidence.group import SPLIT, Group
from pointsman.verdict.decide import (
    ACCEPT,
    NEXT_ACTIONS,
    REJECT,
    TUNE,
    Candidate,
    Check,
    Limits,
    Verdict,
    decide,
)

LEAST_REPEATS = 3
UNKNOWN_IMBALANCE = 1.0  # what the lesson's rule assumes of a candidate that does not say
STRICTER = (REJECT, TUNE, ACCEPT)
NEEDED = (
    "ttft_ms",
    "tpot_ms",
    "e2e_ms",
    "p95_ms",
    "p99_ms",
    "throughput_tokens_per_s",
    "success_rate",
)
REPEAT = f"measure at least {LEAST_REPEATS} repeats of each group"


@dataclass(frozen=True, slots=True)
class Rule:
    """The lesson's limits, and how sure an interval has to be."""

    limits: Limits
    level: float = 0.95
    max_memory_mb: float | None = None


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why a group is not accepted as it is, and what would help."""

    reason: str
    step: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """The decision with everything that it rests on."""

    decision: str
    reason: str
    next_action: str
    next_steps: tuple[str, ...]
    logic: Verdict
    time: str  # the metric that stands for the time in the lesson's rule
    metrics: tuple[Compared, ...]
    checks: tuple[Check, ...]


def judge(baseline: Group, candidate: Group, comparable: Comparable, rule: Rule) -> Judgement:
    """Decide on two groups that ran and may be compared."""
    compared = compare_figures(baseline, candidate, rule.level)
    time = time_metric(baseline, candidate)
    by_name = {each.name: each for each in compared}
    logic = logic_verdict(baseline, candidate, time, rule.limits)
    checks = _checks(baseline, candidate, rule.max_memory_mb)
    doubts = [
        *_lesson_doubts(logic, candidate),
        *_figure_doubts(compared, by_name[time]),
        *_check_doubts(checks),
        *_evidence_doubts(baseline, comparable),
    ]
    rejected = _why_rejected(compared, by_name[time])
    measured = REJECT if rejected else TUNE if doubts else ACCEPT
    decision = min(logic.decision, measured, key=STRICTER.index)
    told = [rejected] if rejected else []
    told += [f"no gain in {time}"] if decision == REJECT and not rejected else []
    told += [doubt.reason for doubt in doubts] if decision != ACCEPT else []
    return Judgement(
        decision=decision,
        reason="; ".join([*told, *_in_numbers(compared, time, told)]),
        next_action=NEXT_ACTIONS[decision],
        next_steps=tuple(dict.fromkeys(d.step for d in doubts)) if decision == TUNE else (),
        logic=logic,
        time=time,
        metrics=compared,
        checks=(replace(logic.checks[0], name=time), *logic.checks[1:], *checks),
    )


def time_metric(baseline: Group, candidate: Group) -> str:
    """What the lesson's makespan is here.

    Where arrivals wait for answers it is the time for all requests. Where they come by themselves
    the window is theirs, however fast the fleet; then it is the mean time of a request.
    """
    known = baseline.makespan_ms.value is not None and candidate.makespan_ms.value is not None
    return "makespan_ms" if known and baseline.facts.load == "closed" else "e2e_ms"


def logic_verdict(baseline: Group, candidate: Group, time: str, limits: Limits) -> Verdict:
    """The lesson's rule. ``comm_ratio`` is hand-off over service time (E2E less queue wait, as the
    lesson's time has no queue in it) of a request; what is not known is taken at its worst."""
    ours, theirs = (_time_of(group, time) for group in (baseline, candidate))
    imbalance, ratio = candidate.imbalance_ratio, comm_ratio(baseline, candidate)
    return decide(
        ours,
        Candidate(
            makespan_ms=theirs,
            imbalance_ratio=UNKNOWN_IMBALANCE if imbalance is None else imbalance,
            comm_cost_ms=ratio * ours if ratio else 0.0,
        ),
        limits,
    )


def comm_ratio(baseline: Group, candidate: Group) -> float:
    """Hand-off of the candidate over the service time of the baseline; infinite if not known."""
    if candidate.shape.mode != SPLIT:
        return 0.0
    handoff = candidate.figures["kv_handoff_ms"].value
    e2e, wait = (baseline.figures[name].value for name in ("e2e_ms", "queue_wait_ms"))
    if handoff is None or e2e is None:
        return float("inf")
    service = e2e - min(wait or 0.0, e2e)
    return handoff / service if service else float("inf")


def _time_of(group: Group, time: str) -> float:
    value = group.makespan_ms.value if time == "makespan_ms" else group.figures["e2e_ms"].value
    return float("inf") if value is None else value


def _checks(baseline: Group, candidate: Group, memory_mb: float | None) -> tuple[Check, ...]:
    least = min(baseline.repeats, candidate.repeats)
    checks = [Check("repeats", least, LEAST_REPEATS, least >= LEAST_REPEATS)]
    ours, theirs = (group.figures["success_rate"].value for group in (baseline, candidate))
    if ours is not None and theirs is not None:
        checks.append(Check("success_rate", theirs, ours, theirs >= ours))
    fraction, wanted = candidate.goodput_fraction, candidate.attainment
    if fraction is not None and wanted is not None:
        checks.append(Check("goodput_fraction", fraction, wanted, fraction >= wanted))
    if memory_mb is not None:
        peak = candidate.figures["peak_memory_mb"].value
        known = float("inf") if peak is None else peak
        checks.append(Check("peak_memory_mb", known, memory_mb, known <= memory_mb))
    return tuple(checks)


_STEPS = {
    "repeats": REPEAT,
    "success_rate": "look at the errors of the requests that did not finish",
    "peak_memory_mb": "use a smaller KV cache or batch, or a higher degree of parallelism",
    "goodput_fraction": "add replicas, lower the rate, or relax the objectives",
}


def _check_doubts(checks: tuple[Check, ...]) -> list[Doubt]:
    return [
        Doubt(
            f"{check.name} is {check.value:.4g}, {_side(check)} {check.limit:.4g}",
            _STEPS[check.name],
        )
        for check in checks
        if not check.passed
    ]


def _side(check: Check) -> str:
    return "above" if check.value > check.limit else "below"


def _lesson_doubts(logic: Verdict, candidate: Group) -> list[Doubt]:
    """The limits of the lesson that are broken; a time that is not less is no doubt but an end."""
    _, even, quiet = logic.checks
    doubts = []
    if not even.passed:
        known = candidate.imbalance_ratio is not None
        reason = (
            f"imbalance_ratio {even.value:.4g} is above {even.limit:.4g}"
            if known
            else f"the load of each replica is not known, which counts as {UNKNOWN_IMBALANCE:g}"
        )
        step = "try another policy" if known else "record which replica served each request"
        doubts.append(Doubt(reason, step))
    if not quiet.passed:
        reason = f"hand-off takes {quiet.value:.3g} of a request's service time, above"
        step = "use a faster link or protocol, or move less: keep prefixes on the decode replica"
        doubts.append(Doubt(f"{reason} {quiet.limit:.4g}", step))
    return doubts


def _figure_doubts(compared: tuple[Compared, ...], time: Compared) -> list[Doubt]:
    doubts = []
    if time.verdict not in (BETTER, WORSE):
        step = "measure more repeats, or more requests in each"
        doubts.append(Doubt(f"{time.name} is not told apart from noise", step))
    for each in compared:
        if each.verdict == WORSE and each.name != time.name:
            doubts.append(Doubt(f"worse: {each.text()}", f"find what makes {each.name} worse"))
        if each.verdict == UNKNOWN and each.name in NEEDED:
            doubts.append(Doubt(f"{each.name} is not known: {each.remark}", f"measure {each.name}"))
    return doubts


def _evidence_doubts(baseline: Group, comparable: Comparable) -> list[Doubt]:
    doubts = [
        Doubt(f"neither file states {name}", "record it, and measure both groups again")
        for name in comparable.unknown
    ]
    if baseline.facts.cache not in ("reset", None):
        reason = "caches were not reset before each repeat: one run's prompts help the next"
        doubts.append(Doubt(reason, "reset the engines' caches before each repeat"))
    return doubts


def _why_rejected(compared: tuple[Compared, ...], time: Compared) -> str | None:
    if time.verdict == UNKNOWN:
        return f"{time.name} is not known: {time.remark}"
    by_name = {each.name: each for each in compared}
    success = by_name["success_rate"]
    if success.verdict == WORSE:
        return f"requests are lost: {success.text()}"
    if time.verdict == WORSE:
        return f"slower: {time.text()}"
    tails = [by_name[name] for name in ("p95_ms", "p99_ms") if by_name[name].verdict == WORSE]
    gains = [each for each in compared if each.verdict == BETTER]
    if tails and not gains:
        return f"longer tails and no gain: {tails[0].text()}"
    return None


def _in_numbers(compared: tuple[Compared, ...], time: str, told: Sequence[str]) -> list[str]:
    """The time first, then whatever is better; not what is told already."""
    first = [each for each in compared if each.name == time]
    rest = [each for each in compared if each.name != time and each.verdict == BETTER]
    texts = [each.text() for each in (*first, *rest)]
    return [text for text in texts if not any(text in reason for reason in told)]
