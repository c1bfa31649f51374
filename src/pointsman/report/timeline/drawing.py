"""One story as events on tracks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pointsman.core.errors import wrong_value
from pointsman.report.timeline.counters import counted
from pointsman.report.timeline.events import Events, text
from pointsman.report.timeline.lanes import NO_LANE, in_order_of_begin, lanes_of
from pointsman.report.timeline.story import ROUTER, Arrow, Gauge, Instants, Places, Stay, Story
from pointsman.report.timeline.tracks import CHOICES, HELD, QUEUED, RUNNING, Numbers, Tracks
from pointsman.workload.workload import Floats

# Tracks of those that wait at one place; more can be neither read nor scrolled through.
MOST_QUEUE_LANES = 64
MOST_RUNNING_LANES = 1 << 20  # more than any replica runs at once

MOST_MS = 9e12  # in nanoseconds it still is a 64-bit integer


def nanoseconds(at_ms: Floats) -> NDArray[np.int64]:
    """Times as a file has them, to the nearest nanosecond; -1 for NaN."""
    if at_ms.size and np.nanmax(at_ms, initial=0.0) > MOST_MS:
        raise wrong_value("timeline", "a time", float(np.nanmax(at_ms)), f"at most {MOST_MS:g} ms")
    return np.where(np.isnan(at_ms), -1, np.rint(np.nan_to_num(at_ms) * 1e6)).astype(np.int64)


class Drawing:
    """Draws a story; of the first ``rows`` requests with every stage.

    ``notes`` say in a sentence each what is not shown.
    """

    def __init__(self, story: Story, rows: int, numbers: Numbers) -> None:
        self._story = story
        self._rows = min(rows, len(story))
        self._numbers = numbers
        self._tracks = Tracks(story, numbers)
        self._events = Events()
        self._ids = [text(name) for name in story.requests[: self._rows]]
        self._facts = self._facts_as_json()
        self._told: set[int] = set()
        self._lanes = [self._lanes_of(stay) for stay in story.stays]
        self.notes = [*story.notes, *self._limits()]

    def texts(self) -> list[str]:
        """Each event as one JSON object: names first, then all others by their times."""
        self._tracks.track(ROUTER, CHOICES)
        for number, stay in enumerate(self._story.stays):
            self._draw_stay(number, stay)
        for arrow in self._story.arrows:
            self._draw_arrow(arrow)
        for instants in self._story.instants:
            self._draw_instants(instants)
        for place in range(len(self._story.places)):
            self._draw_counter(place, "waiting", runs=False)
            self._draw_counter(place, "running", runs=True)
        for gauge in self._story.gauges:
            self._draw_gauge(gauge)
        return self._tracks.names + self._events.texts()

    def _facts_as_json(self) -> list[str]:
        """What is told with each request."""
        columns = {
            name: column[: self._rows].tolist() for name, column in self._story.facts.items()
        }
        told = []
        for row, request in enumerate(self._ids):
            parts = [f'"request":{request}']
            for name, column in columns.items():
                if _is_known(column[row]):
                    parts.append(f'"{name}":{column[row]}')
            told.append(f"{{{','.join(parts)}}}")
        return told

    def _lanes_of(self, stay: Stay) -> Places:
        most = MOST_RUNNING_LANES if stay.runs else MOST_QUEUE_LANES
        return lanes_of(stay, self._rows, most)

    def _limits(self) -> list[str]:
        rows, requests = self._rows, len(self._story)
        limits = []
        if rows < requests:
            limits.append(
                f"the first {rows:,} of {requests:,} requests have their stages; counters count all"
            )
        hidden = sum(
            int(np.count_nonzero((lanes == NO_LANE) & ~np.isnan(stay.begin_ms[:rows])))
            for stay, lanes in zip(self._story.stays, self._lanes, strict=True)
        )
        if hidden:
            limits.append(
                f"{hidden:,} waits, where more than {MOST_QUEUE_LANES} waited at one place, have no"
                " slice; counters count all"
            )
        return limits

    def _track(self, number: int, row: int) -> str | None:
        """Where a request's stay lies; None: nowhere."""
        stay, lane = self._story.stays[number], int(self._lanes[number][row])
        if lane == NO_LANE:
            return None
        place = int(stay.place[row])
        kind = RUNNING if stay.runs else HELD if place == ROUTER else QUEUED
        return self._tracks.track(place, kind, lane)

    def _draw_stay(self, number: int, stay: Stay) -> None:
        stages = [
            (text(stage.name), nanoseconds(stage.begin_ms), nanoseconds(stage.end_ms))
            for stage in stay.stages
        ]
        for row in in_order_of_begin(stay, self._rows).tolist():
            track = self._track(number, row)
            if track is None:
                continue
            args = f'{{"request":{self._ids[row]}}}'
            told = args
            if stay.runs and row not in self._told:  # its facts stand once, where it first runs
                told = self._facts[row]
                self._told.add(row)
            for name, begin_ns, end_ns in stages:
                # Who did not have to wait has no slice of it.
                if end_ns[row] >= begin_ns[row] + (not stay.runs) and begin_ns[row] >= 0:
                    self._events.begin(track, int(begin_ns[row]), name, told)
                    self._events.end(track, int(end_ns[row]))
                    told = args

    def _draw_arrow(self, arrow: Arrow) -> None:
        origin = self._story.stays[arrow.origin[0]].stages[arrow.origin[1]]
        target = self._story.stays[arrow.target[0]].stages[arrow.target[1]]
        begins_ns, leaves_ns = nanoseconds(origin.begin_ms), nanoseconds(origin.end_ms)
        comes_ns, name = nanoseconds(target.begin_ms), text(arrow.name)
        both = origin.happened & target.happened
        for row in np.flatnonzero(both[: self._rows]).tolist():
            source = self._track(arrow.origin[0], row)
            goal = self._track(arrow.target[0], row)
            if source is None or goal is None:
                continue
            number = self._numbers.next()
            # Just before its end, where the slice still is the one that is open.
            within_ns = max(int(begins_ns[row]), int(leaves_ns[row]) - 1)
            self._events.arrow_begins(source, within_ns, name, number)
            self._events.arrow_ends(goal, int(comes_ns[row]), name, number)

    def _draw_instants(self, instants: Instants) -> None:
        track = self._tracks.track(ROUTER, CHOICES)
        names = [text(name) for name in instants.names]
        at_ns = nanoseconds(instants.at_ms)
        places = self._story.places
        for row in np.flatnonzero(at_ns[: self._rows] >= 0).tolist():
            told = {
                what: places[column[row]] for what, column in instants.places if column[row] >= 0
            }
            inside = text(told)[1:-1]
            args = f'{{"request":{self._ids[row]}{"," + inside if inside else ""}}}'
            self._events.instant(track, int(at_ns[row]), names[instants.code[row]], args)

    def _draw_counter(self, place: int, name: str, *, runs: bool) -> None:
        at_ms, numbers = counted(self._story, place, runs=runs)
        self._draw_values(place, name, "requests", (at_ms, numbers))

    def _draw_gauge(self, gauge: Gauge) -> None:
        self._draw_values(gauge.place, gauge.name, gauge.unit, (gauge.at_ms, gauge.values))

    def _draw_values(self, place: int, name: str, unit: str, points: tuple[Floats, Floats]) -> None:
        pid, name_text, key = self._tracks.pid(place), text(name), text(unit)
        at_ns = nanoseconds(points[0]).tolist()
        for each_ns, value in zip(at_ns, points[1].tolist(), strict=True):
            shown = int(value) if value == int(value) else round(value, 4)
            self._events.counter(pid, each_ns, name_text, f"{{{key}:{shown}}}")


def _is_known(value: Any) -> bool:
    """Whether a fact is one: neither negative nor NaN."""
    return not (math.isnan(value) or value < 0)
