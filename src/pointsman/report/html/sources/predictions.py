"""A simulated and a measured result of one policy, beside one another, by figure and stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pointsman.report.html.quantities import TITLES
from pointsman.report.html.result import (
    MEASURED,
    SIMULATED,
    Figure,
    Prediction,
    Result,
    Run,
    runs_of,
)

_REMARK = (
    "Figures of {} stand as predictions beside those of {}, for their policies have one name and"
    " the same parameters: whether their requests and fleets are alike no file says."
)
_FIGURES = ("mean", "p50", "p95", "p99")


def predictions_between(results: Sequence[Result]) -> tuple[Prediction, ...]:
    """Every measured run whose policy, parameters and all, exactly one simulated run has."""
    runs = runs_of(results)
    simulated = [run for run in runs if run.origin == SIMULATED and run.latencies]
    found: list[Prediction] = []
    for run in runs:
        if run.origin != MEASURED or not run.policy or not run.latencies:
            continue
        same = [each for each in simulated if _rule(each) == _rule(run)]
        if len(same) == 1:
            found += _of_pair(same[0], run)
    return tuple(found)


def _rule(run: Run) -> tuple[str, dict[str, float]]:
    return run.policy, run.parameters


def _of_pair(predicted: Run, measured: Run) -> Iterator[Prediction]:
    remark = _REMARK.format(predicted.result, measured.result)
    ours, theirs = predicted.stages, measured.stages
    for name in ours:
        if name in theirs:
            stage, mean = name.replace("_", " "), Figure(theirs[name])
            yield Prediction(
                measured.name, "time", "mean", ours[name], mean, stage=stage, remark=remark
            )
    for name, latency in measured.latencies.items():
        other = predicted.latencies.get(name)
        if other is None:
            continue
        for figure in _FIGURES:
            value, seen = getattr(other.spread, figure), getattr(latency.spread, figure)
            if value is not None and seen is not None:
                known, title = Figure(seen), TITLES[name]
                yield Prediction(measured.name, title, figure, value, known, remark=remark)
