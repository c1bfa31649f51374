"""Each figure of a candidate beside the baseline's, and what the interval of the two says."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pointsman.evidence.group import Figure, Group
from pointsman.evidence.metrics import DEFINITIONS, METRIC_NAMES
from pointsman.verdict.sections import Sections, section_difference
from pointsman.verdict.uncertainty import Interval

BETTER, WORSE, SAME, UNKNOWN, REPORTED = (
    "better",
    "worse",
    "not told apart",
    "unknown",
    "reported only",
)
MAKESPAN = "makespan_ms"


@dataclass(frozen=True, slots=True)
class Compared:
    """One metric of both. ``low`` and ``high`` bound the ``difference``, candidate - baseline, None
    where either is unknown; they are None without repeats."""

    name: str
    unit: str
    baseline: float | None
    candidate: float | None
    low: float | None
    high: float | None
    verdict: str
    remark: str | None
    difference: float | None = None

    def text(self) -> str:
        """In numbers, for a sentence."""
        told = f"{self.name} {_figure(self.candidate)} against {_figure(self.baseline)}"
        if self.low is None or self.high is None:
            return f"{told} (no interval)"
        return f"{told} ({self.low:+,.4g} to {self.high:+,.4g})"


def compare_figures(baseline: Group, candidate: Group, level: float) -> tuple[Compared, ...]:
    """The eleven metrics in their order, then the makespan."""
    compared = [
        _compared(
            (name, DEFINITIONS[name].unit, DEFINITIONS[name].better),
            baseline.figures[name],
            candidate.figures[name],
            level,
        )
        for name in METRIC_NAMES
    ]
    makespan = (MAKESPAN, "ms", -1 if baseline.facts.load == "closed" else 0)
    ours, theirs = baseline.makespan_ms, candidate.makespan_ms
    return (*compared, _compared(makespan, ours, theirs, level))


def _compared(
    metric: tuple[str, str, int], baseline: Figure, candidate: Figure, level: float
) -> Compared:
    name, unit, better = metric
    interval = _interval(baseline, candidate, level)
    low, high = (None, None) if interval is None else (interval.low, interval.high)
    remark = candidate.reason or baseline.reason
    verdict = _verdict(interval, better)
    if better and (baseline.value is None or candidate.value is None):
        verdict = UNKNOWN
        remark = remark or "not said"
    return Compared(
        *(name, unit, baseline.value, candidate.value, low, high, verdict, remark),
        difference=_less(candidate.value, baseline.value),
    )


def _less(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


def _verdict(interval: Interval | None, better: int) -> str:
    if better == 0:
        return REPORTED
    if interval is None or interval.sign == 0:
        return SAME
    return BETTER if interval.sign == better else WORSE


def _interval(baseline: Figure, candidate: Figure, level: float) -> Interval | None:
    """Of candidate - baseline; None where either has fewer than two repeats."""
    if baseline.value is None or candidate.value is None:
        return None
    if min(len(baseline.repeats), len(candidate.repeats)) < 2:
        return None
    interval = section_difference(
        Sections(candidate.value, candidate.repeats),
        Sections(baseline.value, baseline.repeats),
        level,
    )
    return interval if math.isfinite(interval.high) else None


def _figure(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.4g}"
