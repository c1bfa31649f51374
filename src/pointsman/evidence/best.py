"""Which of several accepted groups to take: the one of the least time, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence

from pointsman.evidence.decision_file import Best
from pointsman.evidence.figures import BETTER, MAKESPAN, WORSE, Compared, compare_figures
from pointsman.evidence.group import Figure, Group


def best_of(accepted: Sequence[Group], time: str, level: float) -> Best | None:
    """Held against the one that comes next; None for fewer than two.

    ``time``: the metric that stands for the time. What is not told apart from noise is said to be
    so: then the cheaper or simpler of the two is as good.
    """
    if len(accepted) < 2:
        return None
    best, second = sorted(accepted, key=lambda group: _value(group, time))[:2]
    compared = {each.name: each for each in compare_figures(second, best, level)}
    figure = compared[time]
    is_told_apart = figure.verdict == BETTER
    worse = [each for each in compared.values() if each.verdict == WORSE]
    return Best(
        group=best.name,
        next=second.name,
        is_told_apart=is_told_apart,
        reason=_reason(figure, worse, is_told_apart),
    )


def _reason(figure: Compared, worse: Sequence[Compared], is_told_apart: bool) -> str:
    told = figure.text() if is_told_apart else f"{figure.text()}, not told apart from noise"
    return "; ".join([told, *(f"but {each.text()}" for each in worse)])


def _value(group: Group, time: str) -> float:
    figures: dict[str, Figure] = {str(name): each for name, each in group.figures.items()}
    value = (figures | {MAKESPAN: group.makespan_ms})[time].value
    return float("inf") if value is None else value
