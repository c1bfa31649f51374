"""What a mechanism run shows: is the slowest rank relieved, and does the gain hold in every repeat?

Source: the lesson on serving replica routing, step 5.4. A mechanism that passes goes on to a
serving experiment; it says nothing of a real model's cache hits, of the network or of tails.
"""

from __future__ import annotations

from dataclasses import dataclass

from pointsman.core.errors import InputError
from pointsman.evidence.mechanism_view import StrategyRuns
from pointsman.verdict.decide import ACCEPT, REJECT, TUNE, Check
from pointsman.verdict.sections import Sections, section_difference

BASELINE, CANDIDATE = "round_robin", "least_loaded"
LEAST_REPEATS = 3
NEXT = {
    ACCEPT: ("run_serving_experiment", "pointsman bench EXPERIMENT.toml: the serving experiment"),
    TUNE: ("repeat_mechanism_run", "repeat with more rounds (--repeats) and nothing else running"),
    REJECT: ("audit_ranks", "look at what else each rank does: its work does not set its time"),
}


@dataclass(frozen=True, slots=True)
class MechanismJudgement:
    """``low`` and ``high`` bound the slowest rank's time, least loaded less round robin; None with
    one repeat."""

    decision: str
    reason: str
    next_action: str
    next_steps: tuple[str, ...]
    low: float | None
    high: float | None
    checks: tuple[Check, ...]


def judge_mechanism(
    strategies: tuple[StrategyRuns, ...], where: str, level: float
) -> MechanismJudgement:
    """Least loaded against round robin. Raises InputError where a strategy is not there."""
    baseline, candidate = (_named(strategies, name, where) for name in (BASELINE, CANDIDATE))
    ours, theirs = _sections(baseline), _sections(candidate)
    n = min(len(ours.repeats), len(theirs.repeats))
    interval = section_difference(theirs, ours, level) if n > 1 else None
    checks = (
        _less("max_rank_units", max(candidate.units), max(baseline.units)),
        _less("max_rank_makespan_ms", theirs.overall, ours.overall),
        _less("interval_high_ms", interval.high if interval else float("inf"), 0.0),
        Check("repeats", n, LEAST_REPEATS, n >= LEAST_REPEATS),
    )
    units, relieved, stable, enough = (check.passed for check in checks)
    decision = REJECT if not relieved else TUNE
    if relieved and units and stable and enough:
        decision = ACCEPT
    action, step = NEXT[decision]
    low, high = (interval.low, interval.high) if interval else (None, None)
    told = f"the slowest rank takes {theirs.overall:,.4g} ms against {ours.overall:,.4g} ms"
    told += f" ({low:+,.4g} to {high:+,.4g} ms)" if interval else " (one repeat: no interval)"
    held = f"{_rounds(ours, theirs)}, its work {_units(candidate)} against {_units(baseline)} units"
    return MechanismJudgement(
        decision=decision,
        reason=f"{_word(decision)}: {told}; {held}",
        next_action=action,
        next_steps=(step,),
        low=low,
        high=high,
        checks=checks,
    )


def _named(strategies: tuple[StrategyRuns, ...], name: str, where: str) -> StrategyRuns:
    for strategy in strategies:
        if strategy.strategy == name:
            return strategy
    found = ", ".join(strategy.strategy for strategy in strategies) or "none"
    raise InputError(f"{where}: no row has the strategy {name}; found {found}")


def _sections(strategy: StrategyRuns) -> Sections:
    values = strategy.makespans_ms
    return Sections(sum(values) / len(values), values)


def _less(name: str, value: float, limit: float) -> Check:
    return Check(name, value, limit, value < limit)


def _rounds(baseline: Sections, candidate: Sections) -> str:
    pairs = list(zip(candidate.repeats, baseline.repeats, strict=False))
    won = sum(theirs < ours for theirs, ours in pairs)
    return f"shorter in {won} of {len(pairs)} rounds"


def _units(strategy: StrategyRuns) -> str:
    return "[" + ", ".join(f"{units:g}" for units in strategy.units) + "]"


def _word(decision: str) -> str:
    if decision == ACCEPT:
        return "relieved, and stable over the repeats"
    return "not relieved" if decision == REJECT else "relieved, but not shown to be stable"
