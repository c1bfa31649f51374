"""How many requests wait and run at a place over time, counted from all stays."""

from __future__ import annotations

import numpy as np

from pointsman.report.timeline.story import Stay, Story
from pointsman.workload.workload import Floats

MOST_POINTS = 4096


def counted(story: Story, place: int, *, runs: bool) -> tuple[Floats, Floats]:
    """The instants at which the number changes, and the number from then on.

    At most MOST_POINTS of them: where it changes more often, each of as many even spans of time
    has the highest number that there was in it.
    """
    stays = [stay for stay in story.stays if stay.runs is runs]
    at_ms, numbers = _changes(stays, place)
    return _highest_of_spans(at_ms, numbers) if at_ms.size > MOST_POINTS else (at_ms, numbers)


def _changes(stays: list[Stay], place: int) -> tuple[Floats, Floats]:
    begins, ends = [], []
    for stay in stays:
        rows = (stay.place == place) & ~np.isnan(stay.begin_ms)
        begins.append(stay.begin_ms[rows])
        ends.append(stay.end_ms[rows])
    begin_ms, end_ms = np.concatenate([*begins, []]), np.concatenate([*ends, []])
    at_ms, index = np.unique(np.concatenate([begin_ms, end_ms]), return_inverse=True)
    steps = np.concatenate([np.ones(begin_ms.size), -np.ones(end_ms.size)])
    return at_ms, np.cumsum(np.bincount(index, weights=steps, minlength=at_ms.size))


def _highest_of_spans(at_ms: Floats, numbers: Floats) -> tuple[Floats, Floats]:
    edges = np.linspace(at_ms[0], at_ms[-1], MOST_POINTS)
    before = np.searchsorted(at_ms, edges, side="right") - 1  # what was so when the span began
    behind = np.searchsorted(at_ms, edges, side="left")[1:]  # the first change after the span
    bounds = np.empty(2 * MOST_POINTS - 1, dtype=np.int64)
    bounds[::2], bounds[1::2] = before, behind
    return edges, np.maximum.reduceat(numbers, bounds)[::2]
