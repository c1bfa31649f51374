"""A simulated and a measured result of one policy, beside one another.

Stages are means, which add up: wait, then prefill (first token less wait), then decode.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pointsman.report.html.result import MEASURED, SIMULATED, Figure, Prediction, Result, Run
from pointsman.report.html.views.quantities import TITLES

_FIGURES = ("mean", "p50", "p95", "p99")


def predictions_between(results: Sequence[Result]) -> tuple[Prediction, ...]:
    """Every measured run that exactly one simulated run has the policy of."""
    runs = [run for result in results for run in result.runs]
    simulated = [run for run in runs if run.origin == SIMULATED and run.latencies]
    found: list[Prediction] = []
    for run in runs:
        if run.origin != MEASURED or not run.policy or not run.latencies:
            continue
        same = [each for each in simulated if _rule(each.policy) == _rule(run.policy)]
        if len(same) == 1:
            found += _of_pair(same[0], run)
    return tuple(found)


def _rule(policy: str) -> str:
    """Without its parameters, in either way of writing them."""
    return policy.partition("(")[0].partition(":")[0]


def _of_pair(predicted: Run, measured: Run) -> Iterator[Prediction]:
    ours, theirs = _stages(predicted), _stages(measured)
    for stage in ours:
        if stage in theirs:
            yield Prediction(measured.name, stage, "mean", ours[stage], Figure(theirs[stage]))
    for name, latency in measured.latencies.items():
        other = predicted.latencies.get(name)
        if other is None:
            continue
        for figure in _FIGURES:
            value, seen = getattr(other.spread, figure), getattr(latency.spread, figure)
            if value is not None and seen is not None:
                yield Prediction(measured.name, TITLES[name], figure, value, Figure(seen))


def _stages(run: Run) -> dict[str, float]:
    """Mean times that follow one another, as far as they are known."""
    wait, first, whole = (_mean(run, name) for name in ("queue_wait_ms", "ttft_ms", "e2e_ms"))
    stages = {}
    if wait is not None and first is not None:
        stages["prefill"] = first - wait
    if first is not None and whole is not None:
        stages["decode"] = whole - first
    return stages


def _mean(run: Run, name: str) -> float | None:
    latency = run.latencies.get(name)
    if latency is not None and latency.spread.mean is not None:
        return latency.spread.mean
    figure = run.figures.get(name)
    return None if figure is None else figure.value
