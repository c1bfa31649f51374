"""A simulated and a measured result of one policy, beside one another, by figure and stage."""

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
    ours, theirs = predicted.stages, measured.stages
    for name in ours:
        if name in theirs:
            stage, mean = name.replace("_", " "), Figure(theirs[name])
            yield Prediction(measured.name, "time", "mean", ours[name], mean, stage=stage)
    for name, latency in measured.latencies.items():
        other = predicted.latencies.get(name)
        if other is None:
            continue
        for figure in _FIGURES:
            value, seen = getattr(other.spread, figure), getattr(latency.spread, figure)
            if value is not None and seen is not None:
                yield Prediction(measured.name, TITLES[name], figure, value, Figure(seen))
