"""Which policy to take on a fleet that batches, or that nothing tells them apart."""

from __future__ import annotations

from collections.abc import Sequence

from pointsman.comparison.advice import Advice, few_requests
from pointsman.comparison.differences import (
    BETTER,
    GOODPUT,
    MEAN_E2E,
    MEAN_TTFT,
    NOT_TOLD,
    P95_TTFT,
    WORSE,
    Difference,
)
from pointsman.comparison.fleets import FleetComparison, FleetResult

# What decides, the first figure that tells two policies apart.
DECISIVE = (GOODPUT.name, P95_TTFT.name)
_WORDS = {
    GOODPUT.name: "goodput",
    P95_TTFT.name: "P95 TTFT",
    MEAN_TTFT.name: "mean TTFT",
    MEAN_E2E.name: "mean E2E",
}

# What is named of policies that nothing tells apart, from one of them to the other; no interval
# is known of either: five points of all prompt tokens, a fifth of a replica's mean load.
CACHED_APART, SKEW_APART = 0.05, 0.2


def advise_on_fleet(comparison: FleetComparison) -> Advice:
    """Name the best policy where every other one is worse than it beyond what chance would do.

    Goodput decides where there are objectives; else, and among those that it does not tell apart,
    P95 TTFT. A policy is named only if the intervals of its differences to **all** others leave
    their sign standing. It holds for this workload and fleet, under the simulator's assumptions.
    """
    best, *others = comparison.results
    remarks = _none_met(best) + _lost(comparison.results) + few_requests(len(comparison.workload))
    if not others:
        text = f"Only {best.name} was run: {_figure(best, _first_figure(best))}."
        return Advice(None, None, text + remarks)
    worse = [other for other in others if (told := decided_by(other)) and told.verdict == WORSE]
    tied = [other for other in others if other not in worse]
    if tied:
        return Advice(None, None, _nothing_tells(best, tied, worse) + remarks)
    sentence = f"Take {best.name}: {_against(best, worse)}. {_nearest(worse)}"
    sentence += _price(worse)
    return Advice(best.policy.name, best.policy.label, sentence + remarks)


def decided_by(result: FleetResult) -> Difference | None:
    """The difference to the best that tells the two apart; None where none of them does."""
    by_name = {each.figure: each for each in result.to_best}
    for name in DECISIVE:
        if name in by_name and by_name[name].verdict != NOT_TOLD:
            return by_name[name]
    return None


def _nothing_tells(
    best: FleetResult, tied: Sequence[FleetResult], worse: Sequence[FleetResult]
) -> str:
    name = _first_figure(best)
    if all(_is_same(each, name) for each in tied):
        name = P95_TTFT.name
    listed = [f"{_value(each, name)} ({each.name}{_gap(each, name)})" for each in tied]
    text = (
        f"Nothing on this workload tells {best.name} from"
        f" {', '.join(each.name for each in tied)}: {_figure(best, name)} against"
        f" {', '.join(listed)}."
    )
    text += _told_elsewhere(tied) + _seen_elsewhere(best, tied)
    fewest = min((best, *tied), key=lambda each: len(each.policy.reads))
    text += f" Of these, {fewest.name} reads the fewest signals."
    if worse:
        named = [f"{each.name} ({_value(each, name)})" for each in worse]
        text += f" Worse: {', '.join(named)}."
    return text


def _told_elsewhere(tied: Sequence[FleetResult]) -> str:
    """Which other figures do tell them from the best."""
    clauses = [_clause(each, by) for each in tied for by in each.to_best if by.verdict != NOT_TOLD]
    return f" Yet {'; '.join(clauses)}." if clauses else ""


def _seen_elsewhere(best: FleetResult, tied: Sequence[FleetResult]) -> str:
    """Where hits and loads are far apart, which nobody has an interval of."""
    clauses = []
    for words, figure, least, spec in (
        ("cached prompt tokens", _cached_fraction, CACHED_APART, ".1%"),
        ("token skew", _token_skew, SKEW_APART, ".2f"),
    ):
        mine = figure(best)
        if mine is None:
            continue
        apart = [
            f"{value:{spec}} ({each.name})"
            for each in tied
            if (value := figure(each)) is not None and abs(value - mine) >= least
        ]
        clauses += [f"{words} {mine:{spec}} against {', '.join(apart)}"] if apart else []
    return f" Seen, without an interval: {'; '.join(clauses)}." if clauses else ""


def _cached_fraction(result: FleetResult) -> float | None:
    return result.metrics.cached_token_fraction


def _token_skew(result: FleetResult) -> float | None:
    """Of the pool whose replicas are loaded least alike."""
    return max((each.tokens for each in result.skews.values()), default=None)


def _against(best: FleetResult, worse: Sequence[FleetResult]) -> str:
    clauses: list[str] = []
    for name in DECISIVE:
        told = [each for each in worse if (by := decided_by(each)) and by.figure == name]
        if told:
            listed = [f"{_value(each, name)} ({each.name})" for each in told]
            clause = f"{_figure(best, name)} against {', '.join(listed)}"
            clauses.append(f"{clause}, at goodputs not told apart" if clauses else clause)
    return "; ".join(clauses)


def _nearest(worse: Sequence[FleetResult]) -> str:
    """How sure the narrowest of the differences is."""
    told = [(each, by) for each in worse if (by := decided_by(each)) is not None]
    nearest, by = min(told, key=lambda pair: pair[1].bearable_error_fraction)
    return (
        f"Nearest is {nearest.name}, worse by {_size(by)}; that stands while the model is"
        f" off by less than {100.0 * by.bearable_error_fraction:.3g}%, whichever way."
    )


def _price(worse: Sequence[FleetResult]) -> str:
    """In which figures a policy that is not taken is the better one."""
    clauses = [_clause(each, by) for each in worse for by in each.to_best if by.verdict == BETTER]
    return f" The price: {'; '.join(clauses)}." if clauses else ""


def _clause(result: FleetResult, by: Difference) -> str:
    return f"{_WORDS[by.figure]} of {result.name} is {_size(by)} {by.verdict}"


def _is_same(result: FleetResult, name: str) -> bool:
    """Whether every resample gave the figure of the best."""
    intervals = [each.interval for each in result.to_best if each.figure == name]
    return all(each is not None and each.low == each.high == 0.0 for each in intervals)


def _gap(result: FleetResult, name: str) -> str:
    (by,) = (each for each in result.to_best if each.figure == name)
    if by.interval is None:
        return ", too few requests for an interval"
    return f", a difference of {_between(name, by.interval.low, by.interval.high)}"


def _size(by: Difference) -> str:
    """How large a difference is that has a sign; smallest first."""
    assert by.interval is not None
    low, high = sorted((abs(by.interval.low), abs(by.interval.high)))
    return f"{_between(by.figure, low, high)} (at {by.interval.level:.0%})"


def _between(name: str, low: float, high: float) -> str:
    if low == high == 0.0:
        return "nothing"
    if name == GOODPUT.name:
        return f"{100 * low:.2f} to {100 * high:.2f} points"
    return f"{low:,.1f} to {high:,.1f} ms"


def _first_figure(result: FleetResult) -> str:
    return P95_TTFT.name if result.metrics.goodput is None else GOODPUT.name


def _figure(result: FleetResult, name: str) -> str:
    return f"{_WORDS[name]} {_value(result, name)}"


def _value(result: FleetResult, name: str) -> str:
    goodput, p95_ms = result.metrics.goodput, result.metrics.ttft_ms.p95
    if name == GOODPUT.name and goodput is not None and goodput.fraction is not None:
        return f"{goodput.fraction:.1%}"
    return "none" if p95_ms is None else f"{p95_ms:,.1f} ms"


def _none_met(best: FleetResult) -> str:
    goodput = best.metrics.goodput
    if goodput is None or goodput.met:
        return ""
    return " No request met the objectives, whatever the policy."


def _lost(results: Sequence[FleetResult]) -> str:
    """Requests without an answer, which latencies do not show."""
    counts = [each.metrics.offered - each.metrics.statuses["finished"] for each in results]
    if not any(counts):
        return ""
    listed = [f"{each.name} {n:,}" for each, n in zip(results, counts, strict=True)]
    return f" Failed or rejected: {', '.join(listed)}; latencies are of the others."
